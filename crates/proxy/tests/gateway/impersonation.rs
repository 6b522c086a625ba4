//! Impersonation: every spelling of the setting, SASL's authorization id, `doAs` of HTTP, and who is never impersonated.

use authentication::ImpersonationRules;
use hs2::message::decode_reply;
use hs2::tcli::{TExecuteStatementReq, TExecuteStatementResp, TOpenSessionReq, TOpenSessionResp};
use hs2::{Auth, ClientError, Session, protocol, status};
use model::rights::RoleLists;

use crate::agents::{column, run, try_run};
use crate::cluster::Cluster;
use crate::cookies::post_at;
use crate::fixture::WAIT;
use crate::rights::{PASSWORD, method_file, write_users};

const SPELLINGS: [&str; 12] = [
    "hive.server2.proxy.user",
    "Hive.Server2.Proxy.User",
    "HIVE.SERVER2.PROXY.USER",
    "set:hiveconf:hive.server2.proxy.user",
    "SET:HIVECONF:Hive.Server2.Proxy.User",
    "set:hivevar:hiveconf:hive.server2.proxy.user",
    "set:hive.server2.proxy.user",
    " set:hiveconf: hive.server2.proxy.user ",
    "set:system:hive.server2.proxy.user",
    "kyuubi.session.proxy.user",
    "Kyuubi.Session.Proxy.User",
    "set:hiveconf:kyuubi.session.proxy.user",
];

struct Installation {
    cluster: Cluster,
    _folder: tempfile::TempDir,
}

impl Installation {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        write_users(
            &path,
            &[
                ("admin", &[]),
                ("olga", &["ops"]),
                ("audrey", &["analysts"]),
                ("superset", &[]),
                ("hue", &[]),
                ("ann", &["analysts"]),
                ("bob", &[]),
            ],
        );
        let rules = ["superset: @analysts", "hue: *", "ann: *"].map(str::to_owned);
        let lists = || RoleLists {
            operators: vec!["@ops".to_owned()],
            auditors: vec!["audrey".to_owned()],
            ..RoleLists::of_admins(&["admin"])
        };
        let cluster = Cluster::with_agents(
            1,
            |agent| agent.roles = lists(),
            |proxy| {
                proxy.authentication = Some(method_file(&path));
                proxy.impersonation = ImpersonationRules::parse(&rules).unwrap();
                proxy.roles = lists();
            },
        )
        .await;
        let installation = Self { cluster, _folder: folder };
        let mut admin = installation.try_as("admin", &[]).await.unwrap();
        let _settling = installation.cluster.master.keep_settling();
        for statement in [
            "CREATE RESOURCE UNIT uc_1 MAX_ENGINES 100",
            "CREATE RESOURCE POOL rp_1 UNIT_LIST ('uc_1')",
            "CREATE TENANT t_1 RESOURCE_POOL_LIST ('rp_1'), USER_LIST ('@analysts')",
        ] {
            run(&mut admin, statement).await;
        }
        installation
    }

    async fn try_as(&self, user: &str, keys: &[(&str, &str)]) -> Result<Session, ClientError> {
        self.cluster.try_session_as(Auth::user(user, PASSWORD), keys).await
    }

    async fn try_by_authzid(&self, user: &str, authzid: &str, keys: &[(&str, &str)]) -> Result<Session, ClientError> {
        let auth = Auth::Plain { authzid: authzid.to_owned(), user: user.to_owned(), password: PASSWORD.to_owned() };
        self.cluster.try_session_as(auth, keys).await
    }
}

fn refusal(outcome: Result<Session, ClientError>) -> model::UserError {
    match outcome {
        Err(ClientError::Refused(error)) => error,
        // A handshake that failed has a text only.
        Err(ClientError::Unauthenticated(text)) => {
            model::UserError::from_text(model::ErrorKind::InvalidAuthorization, &text)
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was not refused"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_spelling_is_the_users_session_or_is_refused() {
    let installation = Installation::new().await;
    for key in SPELLINGS {
        let mut session = installation.try_as("superset", &[(key, "ann")]).await.unwrap();
        run(&mut session, "SHOW ENGINES t_1").await;
        let error = refusal(installation.try_as("superset", &[(key, "bob")]).await);
        assert_eq!(error.sqlstate(), "28000", "{key}: {}", error.text());
        let error = refusal(installation.try_as("bob", &[(key, "ann")]).await);
        assert_eq!(error.sqlstate(), "28000", "{key}: {}", error.text());
    }
    let mut session = installation.try_by_authzid("superset", "ann", &[]).await.unwrap();
    run(&mut session, "SHOW ENGINES t_1").await;
    let error = refusal(installation.try_by_authzid("superset", "bob", &[]).await);
    assert!(error.text().contains("not allowed to impersonate"), "{}", error.text());
    // The own name is no impersonation.
    installation.try_as("bob", &[(SPELLINGS[0], "bob")]).await.unwrap();
    installation.try_by_authzid("bob", "bob", &[]).await.unwrap();
    let two = [(SPELLINGS[0], "ann"), (SPELLINGS[9], "bob")];
    assert_eq!(refusal(installation.try_as("hue", &two).await).sqlstate(), "28000");
    // Nor does a later statement change the user, by SET or by its own settings.
    let mut session = installation.try_as("superset", &[]).await.unwrap();
    for key in SPELLINGS.iter().map(|key| key.trim()).filter(|key| !key.contains(' ')) {
        let error = try_run(&mut session, &format!("SET {key}=ann")).await.unwrap_err();
        assert_eq!(error.sqlstate(), "28000", "{key}: {}", error.text());
        let error = try_run(&mut session, &format!("set {key} = 'ann'")).await.unwrap_err();
        assert_eq!(error.sqlstate(), "28000", "{key}: {}", error.text());
    }
    for key in SPELLINGS {
        for (user, is_refused) in [("ann", true), ("", true), ("superset", false)] {
            let error = status_with_overlay(&mut session, key, user).await.err();
            let is_28000 = error.as_ref().is_some_and(|error| error.sqlstate() == "28000");
            assert_eq!(is_28000, is_refused, "{key}={user}: {error:?}");
        }
    }
}

/// As in `OpenSession`: an engine is launched from its unit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_statement_chooses_how_engines_are_launched() {
    let installation = Installation::new().await;
    let mut session = installation.try_as("ann", &[]).await.unwrap();
    for key in ["spark.jars", "Spark.Driver.extraJavaOptions", "set:hiveconf:spark.kubernetes.x", "other:spark.files"] {
        let error = status_with_overlay(&mut session, key, "x").await.unwrap_err();
        assert_eq!(error.sqlstate(), "42501", "{key}: {}", error.text());
        let forms = ["SET {}=x", "set {} = 'x'", "SET {}=", "SET `{}`=x", "SET \"{}\" = 'x'", "SET {} TO 'x'"];
        for statement in forms.map(|form| form.replace("{}", key)) {
            let error = try_run(&mut session, &statement).await.unwrap_err();
            assert_eq!(error.sqlstate(), "42501", "{statement}: {}", error.text());
        }
        assert_eq!(refusal(installation.try_as("ann", &[(key, "x")]).await).sqlstate(), "42501", "{key}");
    }
    let error = status_with_overlay(&mut session, "set:env:PATH", "x").await.unwrap_err();
    assert_eq!(error.sqlstate(), "42501", "{}", error.text());
    status_with_overlay(&mut session, "spark.sql.shuffle.partitions", "1").await.unwrap();
}

/// Runs a statement with a setting of its own.
async fn status_with_overlay(session: &mut Session, key: &str, value: &str) -> Result<(), model::UserError> {
    let request = TExecuteStatementReq {
        session_handle: session.handle().clone(),
        statement: "SHOW TENANTS".to_owned(),
        conf_overlay: Some([(key.to_owned(), value.to_owned())].into()),
        run_async: Some(false),
        query_timeout: None,
    };
    let response: TExecuteStatementResp = session.client().call("ExecuteStatement", &request, WAIT).await.unwrap();
    status::check(&response.status)
}

/// `user:correct horse` in base 64.
const SUPERSET: &str = "Authorization: Basic c3VwZXJzZXQ6Y29ycmVjdCBob3JzZQ==\r\n";
const HUE: &str = "Authorization: Basic aHVlOmNvcnJlY3QgaG9yc2U=\r\n";
const BOB: &str = "Authorization: Basic Ym9iOmNvcnJlY3QgaG9yc2U=\r\n";

/// `doAs` of Apache Knox is a spelling, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn do_as_of_http_is_the_users_session_or_is_refused() {
    let installation = Installation::new().await;
    let opening =
        TOpenSessionReq { client_protocol: protocol::NEWEST, username: None, password: None, configuration: None };
    let status_of = async |path: &str, headers: &str| {
        let (head, _) = post_at(&installation.cluster, path, headers, "OpenSession", &opening).await;
        head.split(' ').nth(1).unwrap().to_owned()
    };
    for name in ["doAs", "doas", "DOAS", "do%41s"] {
        assert_eq!(status_of(&format!("/cliservice?{name}=ann"), SUPERSET).await, "200", "{name}");
        assert_eq!(status_of(&format!("/?x=y&{name}=%61nn&z"), SUPERSET).await, "200", "{name}");
        assert_eq!(status_of(&format!("/cliservice?{name}=bob"), SUPERSET).await, "401", "{name}");
        assert_eq!(status_of(&format!("/cliservice?{name}=ann"), BOB).await, "401", "{name}");
        assert_eq!(status_of(&format!("/cliservice?{name}=bob"), BOB).await, "200", "the own name");
        for query in [format!("{name}="), name.to_owned(), format!("{name}=%ff"), format!("doAs=ann&{name}=ann")] {
            assert_eq!(status_of(&format!("/cliservice?{query}"), SUPERSET).await, "401", "{query}");
        }
    }
    // The session is the named user's, and that user's only.
    let (_, body) = post_at(&installation.cluster, "/?doAs=ann", HUE, "OpenSession", &opening).await;
    let opened: TOpenSessionResp = decode_reply(&body).unwrap();
    let statement = TExecuteStatementReq {
        session_handle: opened.session_handle.unwrap(),
        statement: "SHOW ENGINES t_1".to_owned(),
        conf_overlay: None,
        run_async: Some(false),
        query_timeout: None,
    };
    for (path, expected) in [("/?doAs=ann", None), ("/?doAs=bob", Some("55000"))] {
        let (_, body) = post_at(&installation.cluster, path, HUE, "ExecuteStatement", &statement).await;
        let executed: TExecuteStatementResp = decode_reply(&body).unwrap();
        let refused = status::check(&executed.status).err();
        assert_eq!(refused.as_ref().map(model::UserError::sqlstate), expected, "{path}: {refused:?}");
    }
    // A setting of the session names no third user.
    let keys = [("hive.server2.proxy.user".to_owned(), "bob".to_owned())];
    let chained = TOpenSessionReq { configuration: Some(keys.into()), ..opening.clone() };
    let (_, body) = post_at(&installation.cluster, "/?doAs=ann", HUE, "OpenSession", &chained).await;
    let opened: TOpenSessionResp = decode_reply(&body).unwrap();
    assert_eq!(status::check(&opened.status).unwrap_err().sqlstate(), "28000");
    // A cookie is its own user's, not the named one's.
    let (head, _) = post_at(&installation.cluster, "/", HUE, "OpenSession", &opening).await;
    let cookie = head.lines().find_map(|line| line.strip_prefix("Set-Cookie: ")).unwrap().split(';').next().unwrap();
    let cookie = format!("Cookie: {cookie}\r\n");
    assert_eq!(status_of("/", &cookie).await, "200");
    assert_eq!(status_of("/?doAs=hue", &cookie).await, "200");
    assert_eq!(status_of("/?doAs=ann", &cookie).await, "401");
    let (head, _) = post_at(&installation.cluster, "/?doAs=ann", HUE, "OpenSession", &opening).await;
    assert!(!head.contains("Set-Cookie"), "{head}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roles_unknown_users_and_chains_are_refused_with_one_text() {
    let installation = Installation::new().await;
    let words = |text: String, user: &str| text.replace(&format!("\"{user}\""), "X");
    let expected = words(refusal(installation.try_as("hue", &[(SPELLINGS[0], "admin")]).await).text(), "admin");
    for user in ["olga", "audrey", "eve", "@analysts", "", "ann\nbob"] {
        let error = refusal(installation.try_as("hue", &[(SPELLINGS[0], user)]).await);
        assert_eq!(error.sqlstate(), "28000", "{user}");
        assert_eq!(words(error.text(), &user.escape_debug().to_string()), expected, "{user}");
    }
    installation.try_as("hue", &[(SPELLINGS[0], "bob")]).await.unwrap();
    // ann may impersonate any user, but not when she is impersonated herself.
    installation.try_as("ann", &[(SPELLINGS[0], "bob")]).await.unwrap();
    let chained = installation.try_by_authzid("superset", "ann", &[(SPELLINGS[0], "bob")]).await;
    assert_eq!(refusal(chained).sqlstate(), "28000");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_audit_names_the_user_and_who_impersonates_it() {
    let installation = Installation::new().await;
    let mut session = installation.try_as("superset", &[(SPELLINGS[0], "ann")]).await.unwrap();
    run(&mut session, "START ENGINE t_1 rp_1 uc_1").await;
    let mut session = installation.try_by_authzid("superset", "ann", &[]).await.unwrap();
    run(&mut session, "START ENGINE t_1 rp_1 uc_1").await;
    assert_eq!(try_run(&mut session, "DROP TENANT t_1").await.unwrap_err().sqlstate(), "42501");
    let mut admin = installation.try_as("admin", &[]).await.unwrap();
    let audited = run(&mut admin, "SHOW AUDIT FOR USER 'ann'").await;
    assert_eq!(column(&audited, "via"), ["superset"; 3]);
    assert_eq!(column(&audited, "method"), ["file"; 3]);
    // Rows of one millisecond have no order.
    let mut outcomes = column(&audited, "outcome");
    outcomes.sort_unstable();
    assert_eq!(outcomes, ["committed", "committed", "refused"]);
    assert_eq!(run(&mut admin, "SHOW AUDIT FOR USER 'superset'").await.rows.len(), 0);
}
