//! Refused impersonations in the log of target `audit`.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use hs2::{Auth, Client, ClientError, ClientOptions, Session};

use crate::installation::{Installation, eventually};

const DEADLINE: Duration = Duration::from_secs(30);
/// The most lines about one address in a minute.
const MAX_LINES: usize = 10;

/// Opens a session of hue on behalf of another user.
async fn open_for(installation: &Installation, user: &str) -> Result<Session, ClientError> {
    let options = ClientOptions::new(installation.address.clone(), Auth::user("hue", ""));
    let keys = [("hive.server2.proxy.user".to_owned(), user.to_owned())];
    Session::open(Client::connect(&options).await?, &keys).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_impersonations_are_in_the_audit_log_ten_of_an_address_in_a_minute() {
    let mut installation = Installation::not_started();
    installation.set("ENGINEHOUSE_ACCESS_IMPERSONATION", "[\"hue: ann\"]");
    installation.start_again();
    let lines = |installation: &Installation| {
        let log = installation.log();
        let lines = log.lines().filter(|line| line.contains(" audit: impersonation refused"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let mut session = open_for(&installation, "ann").await.unwrap();
    assert_eq!(lines(&installation), Vec::<String>::new());
    session.run("SHOW TENANTS", DEADLINE).await.unwrap();
    let refused = session.run("SET hive.server2.proxy.user=carl", DEADLINE).await.map(drop).unwrap_err();
    assert!(refused.to_string().contains("not allowed to impersonate"), "{refused}");
    // The name of an admin, of a stranger, and one that would begin a line of its own.
    for user in ["admin", "eve", "eve\naudit: login"] {
        open_for(&installation, user).await.map(drop).unwrap_err();
    }
    eventually("the lines", || lines(&installation).len() == 4);
    for (line, user) in lines(&installation).iter().zip(["carl", "admin", "eve", "eve\\\\naudit: login"]) {
        for field in
            ["event=\"impersonation_refused\"", &format!("user=\"{user}\""), "via=\"hue\"", "address=127.0.0.1"]
        {
            assert!(line.contains(field), "{field}: {line}");
        }
    }
    for _ in 0..2 * MAX_LINES {
        open_for(&installation, "eve").await.map(drop).unwrap_err();
    }
    // Of the same process as the refusals, and written after them.
    open_for(&installation, "ann").await.unwrap();
    eventually("ten lines", || lines(&installation).len() == MAX_LINES);
    assert_eq!(installation.complaints(), Vec::<String>::new());
}
