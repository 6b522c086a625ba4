//! Sessions of users whom tokens name: their groups are those of the token, until it expires.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use authentication::{Chain, ImpersonationRules, Method, Throttle, Verdict};
use hs2::message::decode_reply;
use hs2::tcli::{TExecuteStatementReq, TExecuteStatementResp, TOpenSessionReq, TOpenSessionResp, TSessionHandle};
use hs2::{Auth, HttpScheme, protocol, status};
use model::clock::{Clock as _, SystemClock};
use proxy::Settings;

use crate::agents::{run, try_run};
use crate::cluster::Cluster;
use crate::cookies::post_at;

/// Accepts tokens such as `token.ann.analysts.7000000000000`: user, group, and when they expire, which the proxy has to compare.
struct Tokens;

const IN_A_DISTANT_FUTURE: &str = "7000000000000";

#[async_trait]
impl Method for Tokens {
    fn name(&self) -> &'static str {
        "jwt"
    }

    fn http_schemes(&self) -> &'static [HttpScheme] {
        &[HttpScheme::Bearer]
    }

    fn takes_as_token(&self, password: &str) -> bool {
        password.starts_with("token.")
    }

    fn accepts_no_user_name(&self) -> bool {
        true
    }

    fn may_have(&self, _: &str) -> bool {
        true
    }

    async fn login(&self, _: &str, _: &str) -> Verdict {
        Verdict::Unknown
    }

    async fn token(&self, token: &str) -> Verdict {
        let parts: Vec<&str> = token.split('.').collect();
        let ["token", user, group, expires_ms] = parts[..] else { return Verdict::Rejected("no token") };
        Verdict::Accepted {
            user: Some(user.to_owned()),
            groups: vec![group.to_owned()],
            expires_ms: Some(expires_ms.parse().unwrap()),
        }
    }

    async fn groups(&self, _: &str) -> Option<Vec<String>> {
        None
    }
}

fn with_tokens(settings: &mut Settings) {
    let clock = SystemClock::shared();
    let throttle = Throttle::new(Duration::from_mins(5), clock.clone());
    settings.authentication = Some(Arc::new(Chain::new(vec![Arc::new(Tokens)], throttle, clock)));
    settings.impersonation = ImpersonationRules::parse(&["etl: ann, @analysts".to_owned()]).unwrap();
}

fn token(user: &str, group: &str) -> String {
    format!("token.{user}.{group}.{IN_A_DISTANT_FUTURE}")
}

/// One whose time is over before the reply to the login.
fn short_token(user: &str, group: &str) -> String {
    format!("token.{user}.{group}.{}", SystemClock.wall_ms())
}

/// A cluster with tenant `t_1` of the group `analysts`.
async fn cluster() -> Cluster {
    let cluster = Cluster::with(1, with_tokens).await;
    let mut admin = cluster.try_session_as(Auth::user("", token("admin", "none")), &[]).await.unwrap();
    {
        let _settling = cluster.master.keep_settling();
        for statement in [
            "CREATE RESOURCE UNIT uc_1",
            "CREATE RESOURCE POOL rp_1 UNIT_LIST ('uc_1')",
            "CREATE TENANT t_1 RESOURCE_POOL_LIST ('rp_1'), USER_LIST ('@analysts')",
        ] {
            run(&mut admin, statement).await;
        }
    }
    cluster
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_has_the_groups_of_its_own_token_until_that_expires() {
    let cluster = cluster().await;
    let login = |token: String| Auth::user("", token);
    let mut analyst = cluster.try_session_as(login(token("ann", "analysts")), &[]).await.unwrap();
    let mut limited = cluster.try_session_as(login(token("ann", "other")), &[]).await.unwrap();
    run(&mut analyst, "SHOW ENGINES t_1").await;
    assert_eq!(try_run(&mut limited, "SHOW ENGINES t_1").await.unwrap_err().sqlstate(), "42501");
    run(&mut analyst, "SHOW ENGINES t_1").await;
    let mut short = cluster.try_session_as(login(short_token("ann", "analysts")), &[]).await.unwrap();
    let error = try_run(&mut short, "SHOW ENGINES t_1").await.unwrap_err();
    assert_eq!((error.sqlstate(), error.message.as_str()), ("28000", "the token of user \"ann\" has expired"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_whom_tokens_name_is_impersonated_by_name_and_without_groups() {
    let cluster = cluster().await;
    let as_user = |user: &str, token: String| {
        let key = [("hive.server2.proxy.user".to_owned(), user.to_owned())];
        (Auth::user("", token), key)
    };
    let (auth, [(key, user)]) = as_user("ann", token("etl", "analysts"));
    let mut as_ann = cluster.try_session_as(auth, &[(&key, &user)]).await.unwrap();
    assert_eq!(
        try_run(&mut as_ann, "SHOW ENGINES t_1").await.unwrap_err().sqlstate(),
        "42501",
        "ann has no groups here"
    );
    let (auth, [(key, user)]) = as_user("bob", token("etl", "analysts"));
    let refused = cluster.try_session_as(auth, &[(&key, &user)]).await;
    assert!(refused.is_err(), "a rule with a group permits no user whose groups are not known");
    let (auth, [(key, user)]) = as_user("ann", short_token("etl", "analysts"));
    let mut as_ann = cluster.try_session_as(auth, &[(&key, &user)]).await.unwrap();
    assert_eq!(
        try_run(&mut as_ann, "SHOW ENGINES t_1").await.unwrap_err().sqlstate(),
        "28000",
        "the login has expired"
    );
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

async fn open(cluster: &Cluster, header: &str) -> (String, Vec<u8>) {
    let opening =
        TOpenSessionReq { client_protocol: protocol::NEWEST, username: None, password: None, configuration: None };
    post_at(cluster, "/cliservice", header, "OpenSession", &opening).await
}

/// The SQLSTATE of a statement over HTTP.
async fn sqlstate(cluster: &Cluster, token: &str, session_handle: &TSessionHandle) -> Option<String> {
    let statement = TExecuteStatementReq {
        session_handle: session_handle.clone(),
        statement: "SHOW ENGINES t_1".to_owned(),
        conf_overlay: None,
        run_async: Some(false),
        query_timeout: None,
    };
    let (head, body) = post_at(cluster, "/cliservice", &bearer(token), "ExecuteStatement", &statement).await;
    assert!(head.starts_with("HTTP/1.1 200 ") && !head.contains("Set-Cookie"), "{head}");
    let executed: TExecuteStatementResp = decode_reply(&body).unwrap();
    status::check(&executed.status).err().map(|error| error.sqlstate().to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_call_over_http_has_the_groups_of_its_token() {
    let cluster = cluster().await;
    let (head, body) = open(&cluster, &bearer(&short_token("ann", "analysts"))).await;
    assert!(head.starts_with("HTTP/1.1 200 ") && !head.contains("Set-Cookie"), "{head}");
    let opened: TOpenSessionResp = decode_reply(&body).unwrap();
    status::check(&opened.status).unwrap();
    let session = opened.session_handle.unwrap();
    assert_eq!(sqlstate(&cluster, &token("ann", "analysts"), &session).await, None, "a new token");
    assert_eq!(sqlstate(&cluster, &token("ann", "other"), &session).await.as_deref(), Some("42501"));
    assert_eq!(sqlstate(&cluster, &token("ann", "analysts"), &session).await, None);
    assert!(sqlstate(&cluster, &token("bob", "analysts"), &session).await.is_some(), "it is ann's");

    let (head, body) = open(&cluster, &bearer("no-token")).await;
    assert!(head.starts_with("HTTP/1.1 401 ") && body == b"authentication failed\n", "{head}");
    assert!(head.contains("Www-Authenticate: Bearer ") && !head.contains("Basic"), "{head}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_names_are_trusted_a_token_is_refused_by_name() {
    let cluster = Cluster::with(0, |_| {}).await;
    let (head, body) = open(&cluster, &bearer(&token("admin", "none"))).await;
    assert!(head.starts_with("HTTP/1.1 401 ") && head.contains("Www-Authenticate: Basic "), "{head}");
    assert!(body.starts_with(b"bearer tokens are not accepted\n"), "{}", String::from_utf8_lossy(&body));
}
