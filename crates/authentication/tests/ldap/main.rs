//! The method `ldap` against a real slapd.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod slapd;

use std::sync::Arc;
use std::time::{Duration, Instant};

use authentication::{
    GroupSearch, LdapMethod, LdapSettings, LdapUrl, LoginCache, Method as _, SearchIdentity, Template, UserSource,
    Verdict,
};
use hs2::ClientTls;
use model::clock::{ManualClock, SystemClock};
use model::error::UserError;
use slapd::{PASSWORD, READER, Slapd};
use tests::certificate::Certificate;

const MINUTE: Duration = Duration::from_mins(1);
/// Of each kind, where times are compared.
const LOGINS: usize = 200;

fn settings(slapd: &Slapd, url: &str) -> LdapSettings {
    LdapSettings {
        urls: LdapUrl::parse_list(url).unwrap(),
        tls: ClientTls::from_ca_file(slapd.ca()).unwrap(),
        start_tls: false,
        users: UserSource::Search {
            base: "ou=people,dc=x".to_owned(),
            filter: Template::user_filter("(|(uid={user})(employeeNumber={user}))").unwrap(),
        },
        identity: Some(reader(PASSWORD)),
        groups: None,
        member_of: Some("memberOf".to_owned()),
        name_attribute: "uid".to_owned(),
        connections: 2,
        connect_timeout: Duration::from_secs(5),
        timeout: Duration::from_secs(5),
        refresh: MINUTE,
        stale: 60 * MINUTE,
    }
}

/// The identity for searches, with this password.
fn reader(password: &'static str) -> SearchIdentity {
    SearchIdentity::new(READER, move || Ok(password.to_owned())).unwrap()
}

fn method(settings: LdapSettings, clock: &Arc<ManualClock>) -> LdapMethod {
    LdapMethod::new(settings, Arc::new(LoginCache::new(MINUTE, clock.clone())), clock.clone())
}

/// The name and groups of a login that succeeded, or the name of another verdict.
async fn login(method: &LdapMethod, user: &str, password: &str) -> Result<(String, String), &'static str> {
    match method.login(user, password).await {
        Verdict::Accepted { user, groups, .. } => Ok((user.unwrap(), groups.join("; "))),
        Verdict::Refused | Verdict::Rejected(_) => Err("refused"),
        Verdict::Unknown => Err("unknown"),
        Verdict::Unavailable(error) => Err(unavailable(&error)),
    }
}

fn unavailable(error: &UserError) -> &'static str {
    assert_eq!((error.sqlstate(), error.text().contains("the directory does not respond")), ("57P03", true));
    "unavailable"
}

fn account(name: &str, groups: &str) -> (String, String) {
    (name.to_owned(), groups.to_owned())
}

#[tokio::test]
#[ignore = "needs slapd"]
async fn users_are_found_and_have_the_name_and_the_groups_of_the_directory() {
    let slapd = Slapd::start().await;
    let clock = ManualClock::at(0);
    let by_attribute = method(settings(&slapd, &slapd.url()), &clock);
    for typed in ["alice", "ALICE", "7"] {
        assert_eq!(login(&by_attribute, typed, "alice's").await, Ok(account("alice", "analysts; data team")));
        assert_eq!(login(&by_attribute, typed, "Alice's").await, Err("refused"));
    }
    assert_eq!(login(&by_attribute, "bob", "bob's").await, Ok(account("bob", "")));
    assert_eq!(login(&by_attribute, "eve", "alice's").await, Err("unknown"));
    assert_eq!(login(&by_attribute, "8", "bob's").await, Err("refused"), "two entries have it");
    assert_eq!(by_attribute.groups("alice").await.unwrap(), ["analysts", "data team"]);
    assert_eq!(by_attribute.groups("eve").await, None);
    let groups = GroupSearch {
        base: "ou=groups,dc=x".to_owned(),
        filter: Template::group_filter("(member={dn})").unwrap(),
        attribute: "cn".to_owned(),
    };
    let by_search = LdapSettings { groups: Some(groups), member_of: None, ..settings(&slapd, &slapd.url()) };
    assert_eq!(
        login(&method(by_search, &clock), "alice", "alice's").await,
        Ok(account("alice", "analysts; data team"))
    );
}

#[tokio::test]
#[ignore = "needs slapd"]
async fn a_user_without_a_name_of_its_own_is_refused() {
    let slapd = Slapd::start().await;
    let clock = ManualClock::at(0);
    let nameless = LdapSettings { name_attribute: "description".to_owned(), ..settings(&slapd, &slapd.url()) };
    assert_eq!(login(&method(nameless, &clock), "alice", "alice's").await, Err("refused"));
    let pattern = UserSource::Pattern(Template::pattern("uid={user},ou=people,dc=x").unwrap());
    let unread = LdapSettings { users: pattern, identity: None, member_of: None, ..settings(&slapd, &slapd.url()) };
    assert_eq!(
        login(&method(unread, &clock), "ALICE", "alice's").await,
        Ok(account("alice", "")),
        "nothing may be read"
    );
}

#[tokio::test]
#[ignore = "needs slapd"]
async fn names_are_taken_literally() {
    let slapd = Slapd::start().await;
    let clock = ManualClock::at(0);
    let by_search = method(settings(&slapd, &slapd.url()), &clock);
    for name in ["*", "*)(uid=*", "alice)(uid=*", "\\61lice", "a\0", "alice\0", "uid=alice,ou=people,dc=x"] {
        assert_eq!(login(&by_search, name, "alice's").await, Err("unknown"), "{name:?}");
    }
    let pattern = UserSource::Pattern(Template::pattern("uid={user},ou=people,dc=x").unwrap());
    let by_pattern = method(LdapSettings { users: pattern, ..settings(&slapd, &slapd.url()) }, &clock);
    assert_eq!(login(&by_pattern, "ALICE", "alice's").await, Ok(account("alice", "analysts; data team")));
    for name in ["alice,ou=people,dc=x", "alice+cn=Alice", "*", "alice\0"] {
        assert_eq!(login(&by_pattern, name, "alice's").await, Err("refused"), "{name:?}");
    }
    assert_eq!(login(&by_pattern, "alice", "alice's\0").await, Err("refused"));
}

#[tokio::test]
#[ignore = "needs slapd"]
async fn a_directory_that_is_away_refuses_no_user_and_comes_back() {
    let mut slapd = Slapd::start().await;
    let clock = ManualClock::at(0);
    let method = method(settings(&slapd, &slapd.url()), &clock);
    assert_eq!(login(&method, "alice", "alice's").await, Ok(account("alice", "analysts; data team")));
    slapd.kill();
    assert_eq!(login(&method, "alice", "alice's").await, Ok(account("alice", "analysts; data team")), "it is cached");
    assert_eq!(login(&method, "alice", "wrong").await, Err("unavailable"));
    assert_eq!(login(&method, "eve", "wrong").await, Err("unavailable"));
    clock.advance(MINUTE);
    assert_eq!(login(&method, "alice", "alice's").await, Err("unavailable"), "the cached login has expired");
    assert_eq!(method.groups("alice").await.unwrap().len(), 2, "its groups count for an hour");
    clock.advance(60 * MINUTE);
    assert_eq!(method.groups("alice").await, None);
    slapd.resume().await;
    assert_eq!(login(&method, "alice", "alice's").await, Ok(account("alice", "analysts; data team")));
    // The connections are open and idle; the server closes them.
    slapd.kill();
    slapd.resume().await;
    assert_eq!(login(&method, "alice", "wrong").await, Err("refused"));
}

#[tokio::test]
#[ignore = "needs slapd"]
async fn new_connections_use_a_rotated_password_of_searches() {
    let mut slapd = Slapd::start().await;
    let clock = ManualClock::at(0);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, PASSWORD).unwrap();
    let path = file.clone();
    let identity = SearchIdentity::new(READER, move || Ok(std::fs::read_to_string(&path)?)).unwrap();
    let method = method(LdapSettings { identity: Some(identity), ..settings(&slapd, &slapd.url()) }, &clock);
    let alice = || Ok(account("alice", "analysts; data team"));
    assert_eq!(login(&method, "alice", "alice's").await, alice());
    slapd.change(&format!("dn: {READER}\nchangetype: modify\nreplace: userPassword\nuserPassword: second\n"));
    clock.advance(MINUTE);
    assert_eq!(login(&method, "alice", "alice's").await, alice(), "an open connection stays bound");
    // Its connections are gone, as after a restart of the directory.
    slapd.kill();
    slapd.resume().await;
    clock.advance(MINUTE);
    assert_eq!(login(&method, "alice", "alice's").await, Err("unavailable"), "the file has the old password");
    std::fs::write(&file, "second").unwrap();
    assert_eq!(login(&method, "alice", "alice's").await, alice());
    // The last password stays in use while there is no file.
    std::fs::remove_file(&file).unwrap();
    slapd.kill();
    slapd.resume().await;
    clock.advance(MINUTE);
    assert_eq!(login(&method, "alice", "alice's").await, alice());
}

#[tokio::test]
#[ignore = "needs slapd"]
async fn groups_are_read_again() {
    let slapd = Slapd::start().await;
    let clock = ManualClock::at(0);
    let method = method(settings(&slapd, &slapd.url()), &clock);
    assert_eq!(login(&method, "alice", "alice's").await, Ok(account("alice", "analysts; data team")));
    slapd.change("dn: cn=analysts,ou=groups,dc=x\nchangetype: delete\n");
    assert_eq!(method.groups("alice").await.unwrap(), ["analysts", "data team"]);
    clock.advance(MINUTE);
    assert_eq!(method.groups("alice").await.unwrap(), ["data team"]);
}

#[tokio::test]
#[ignore = "needs slapd"]
async fn no_password_is_sent_before_the_certificate_is_verified() {
    let slapd = Slapd::start().await;
    let clock = ManualClock::at(0);
    let start_tls = |url: &str| LdapSettings { start_tls: true, ..settings(&slapd, url) };
    let tls = method(settings(&slapd, &slapd.tls_url()), &clock);
    assert_eq!(login(&tls, "alice", "alice's").await, Ok(account("alice", "analysts; data team")));
    let upgraded = method(start_tls(&slapd.url()), &clock);
    assert_eq!(login(&upgraded, "bob", "bob's").await, Ok(account("bob", "")));
    let binds = || slapd.log().matches(" BIND dn=\"").count();
    let before = binds();
    assert!(before > 0, "{}", slapd.log());
    // A certificate of another authority.
    let folder = tempfile::tempdir().unwrap();
    let other = Certificate::create(folder.path(), "other").unwrap();
    let other = ClientTls::from_ca_file(&other.certificate).unwrap();
    for settings in [settings(&slapd, &slapd.tls_url()), start_tls(&slapd.url())] {
        let method = method(LdapSettings { tls: other.clone(), ..settings }, &clock);
        assert_eq!(login(&method, "alice", "alice's").await, Err("unavailable"));
    }
    assert_eq!(binds(), before);
}

#[tokio::test]
#[ignore = "needs slapd"]
async fn a_probe_says_of_each_directory_why_it_cannot_be_used() {
    let slapd = Slapd::start().await;
    let probe = async |settings: LdapSettings| {
        let probed = LdapMethod::probe(&settings).await;
        probed.into_iter().map(|(_, result)| result.err().unwrap_or_default()).collect::<Vec<String>>()
    };
    let both = settings(&slapd, &format!("{},ldap://127.0.0.1:1", slapd.url()));
    let found = probe(both.clone()).await;
    assert!(found[0].is_empty() && found[1].contains("Connection refused"), "{found:?}");
    let found = |text: &str| vec![text.to_owned()];
    let one = settings(&slapd, &slapd.url());
    let wrong = Some(reader("wrong"));
    assert_eq!(
        probe(LdapSettings { identity: wrong, ..one.clone() }).await,
        found("ldap.bind_dn is refused with result 49")
    );
    let filter = Template::user_filter("(uid={user})").unwrap();
    let elsewhere = UserSource::Search { base: "ou=nowhere,dc=x".to_owned(), filter };
    assert_eq!(
        probe(LdapSettings { users: elsewhere, ..one.clone() }).await,
        found("ldap.user_base, \"ou=nowhere,dc=x\", does not exist, or its identity may not read it")
    );
    let pattern = UserSource::Pattern(Template::pattern("uid={user},ou=people,dc=x").unwrap());
    assert_eq!(probe(LdapSettings { users: pattern, identity: None, ..one }).await, found(""));
}

#[tokio::test]
#[ignore = "needs slapd"]
async fn the_next_directory_is_asked_if_one_is_away() {
    let slapd = Slapd::start().await;
    let clock = ManualClock::at(0);
    let urls = format!("ldap://127.0.0.1:1,{}", slapd.url());
    let method = method(settings(&slapd, &urls), &clock);
    assert_eq!(login(&method, "alice", "alice's").await, Ok(account("alice", "analysts; data team")));
}

#[tokio::test]
#[ignore = "needs slapd"]
async fn a_server_that_does_not_answer_delays_one_connection_by_the_time_to_connect() {
    let slapd = Slapd::start().await;
    let clock = ManualClock::at(0);
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let urls = format!("ldaps://localhost:{},{}", silent.local_addr().unwrap().port(), slapd.tls_url());
    let (connect_timeout, timeout) = (Duration::from_millis(200), Duration::from_secs(20));
    let method = method(LdapSettings { connect_timeout, timeout, ..settings(&slapd, &urls) }, &clock);
    let begun = Instant::now();
    assert_eq!(login(&method, "alice", "alice's").await, Ok(account("alice", "analysts; data team")));
    assert!(begun.elapsed() < timeout, "an operation may take longer than a connection");
    silent.accept().await.unwrap();
    let again = tokio::time::timeout(Duration::ZERO, silent.accept()).await;
    assert!(again.is_err(), "the connection for logins was opened to the other server");
}

#[tokio::test]
#[ignore = "needs slapd"]
async fn a_server_that_is_no_directory_or_never_responds_is_away() {
    let slapd = Slapd::start().await;
    let clock = ManualClock::at(0);
    for response in [&b""[..], b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x30\x0c\x02\x01\x01\x61\x07\x0a\x01"] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ldap://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            let mut open = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, response).await;
                open.push(stream);
            }
        });
        let settings = LdapSettings { timeout: Duration::from_millis(300), ..settings(&slapd, &url) };
        let begun = Instant::now();
        let short = LdapSettings { connect_timeout: Duration::from_millis(300), ..settings };
        assert_eq!(login(&method(short, &clock), "alice", "alice's").await, Err("unavailable"), "{response:?}");
        assert!(begun.elapsed() < Duration::from_secs(10), "it has a deadline");
        server.abort();
    }
}

#[tokio::test]
#[ignore = "needs slapd"]
async fn an_unknown_user_takes_as_long_as_a_wrong_password() {
    let slapd = Slapd::start().await;
    let clock = SystemClock::shared();
    let cache = Arc::new(LoginCache::new(Duration::ZERO, clock.clone()));
    let method = LdapMethod::new(settings(&slapd, &slapd.url()), cache, clock);
    let mut took = [Vec::new(), Vec::new()];
    // In turns, so that what else happens on the machine meets both. The delays after failures are the chain's: none takes part.
    for _ in 0..LOGINS {
        for (user, took) in ["alice", "eve"].into_iter().zip(&mut took) {
            let begun = Instant::now();
            login(&method, user, "wrong").await.unwrap_err();
            took.push(begun.elapsed());
        }
    }
    let [wrong, unknown] = took.map(|mut took| {
        took.sort();
        took[LOGINS / 2]
    });
    println!("medians of {LOGINS}: wrong password {wrong:?}, unknown user {unknown:?}");
    assert!(
        wrong.abs_diff(unknown) <= wrong.min(unknown) / 20,
        "a user is revealed by the time: {wrong:?}, {unknown:?}"
    );
}
