//! TLS to real servers: `PostgreSQL` and `MariaDB` with certificates that are made here.

#![allow(clippy::unwrap_used, clippy::panic)]

mod relay;
mod servers;

use std::fs;
use std::path::{Path, PathBuf};

use metadata::{Error, PasswordSource, Store, StoreErrorKind, StoreSettings};
use model::cause::Cause;
use model::change::Rules;
use model::clock::SystemClock;
use relay::Relay;
use servers::{Kind, PASSWORD, Server};
use tempfile::TempDir;
use tests::certificate::{Authority, Certificate};

/// The request of `PostgreSQL`'s protocol for TLS: its length, and the code 80877103.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
const THIS_HOST: &str = "DNS:localhost,IP:127.0.0.1";

/// A server and the files of its client.
struct Installation {
    server: Server,
    files: TempDir,
    trusted: Authority,
    /// Of the CA that the client trusts.
    certificate: Certificate,
}

impl Installation {
    /// A server with TLS and with the tables of Enginehouse.
    async fn create(kind: Kind) -> Self {
        let files = tempfile::tempdir().unwrap();
        let trusted = Authority::create(files.path(), "trusted").unwrap();
        let certificate = trusted.sign("server", THIS_HOST).unwrap();
        let mut server = Server::create(kind).await;
        server.restart(Some(&certificate)).await;
        let created = Self { server, files, trusted, certificate };
        created.write_password(PASSWORD);
        Store::migrate(&created.settings()).await.unwrap();
        created
    }

    fn password_file(&self) -> PathBuf {
        self.files.path().join("password")
    }

    fn write_password(&self, password: &str) {
        fs::write(self.password_file(), password).unwrap();
    }

    fn settings(&self) -> StoreSettings {
        self.settings_of(&self.server.url("127.0.0.1", self.server.port), &self.trusted.0.certificate)
    }

    fn settings_of(&self, url: &str, ca_file: &Path) -> StoreSettings {
        let path = self.password_file();
        let read = move || fs::read_to_string(&path).map_err(Cause::from);
        let password = Some(PasswordSource::new(read));
        StoreSettings { ca_file: Some(ca_file.to_owned()), password, ..StoreSettings::new(url) }
    }
}

async fn open(settings: &StoreSettings) -> Result<Store, Error> {
    Store::open(settings, Rules::default(), SystemClock::shared()).await
}

/// The text for operators of an error of trust; another error fails the test.
fn distrust<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    let error = result.unwrap_err();
    assert!(matches!(error, Error::Untrusted(_)), "{error:?}");
    assert_eq!(error.kind(), StoreErrorKind::Operator);
    error.user_error().text()
}

async fn only_the_server_that_proves_its_name_receives_a_login(kind: Kind) {
    let mut it = Installation::create(kind).await;
    let port = it.server.port;
    // The user may log in with TLS only, so these connections are encrypted.
    let by_name = it.settings_of(&it.server.url("localhost", port), &it.trusted.0.certificate);
    for settings in [it.settings(), by_name] {
        assert!(settings.is_encrypted().unwrap());
        open(&settings).await.unwrap().close().await;
    }
    let plain = StoreSettings { ca_file: None, ..it.settings() };
    assert!(!plain.is_encrypted().unwrap());
    let diagnosed = Store::diagnose(&plain, &SystemClock::shared()).await.unwrap_err();
    assert!(matches!(diagnosed, Error::Unavailable(_)), "{diagnosed:?}");

    let relay = Relay::start(port).await;
    let other = Authority::create(it.files.path(), "other").unwrap();
    let relayed = it.server.url("127.0.0.1", relay.port);
    let text = distrust(open(&it.settings_of(&relayed, &other.0.certificate)).await);
    assert!(
        text.contains(&format!("of the database server 127.0.0.1:{} was signed by an unknown CA", relay.port)),
        "{text}"
    );
    assert!(text.contains("Set database.ca_file"), "{text}");
    let strict = if kind == Kind::Postgres { "sslmode=verify-full" } else { "ssl-mode=VERIFY_IDENTITY" };
    let public_roots = StoreSettings { ca_file: None, ..it.settings_of(&format!("{relayed}?{strict}"), Path::new("")) };
    assert!(distrust(open(&public_roots).await).contains("unknown CA"));
    let diagnosed = Store::diagnose(&public_roots, &SystemClock::shared()).await;
    assert!(distrust(diagnosed).contains("unknown CA"));

    // A store that is open does not log in at another server that has taken over the address.
    let store = open(&it.settings_of(&relayed, &it.trusted.0.certificate)).await.unwrap();
    store.snapshot().await.unwrap();
    it.server.restart(Some(&other.sign("impostor", THIS_HOST).unwrap())).await;
    assert!(distrust(store.snapshot().await).contains("unknown CA"));
    it.server.restart(Some(&it.certificate)).await;
    store.snapshot().await.unwrap();
    store.close().await;

    it.server.restart(Some(&it.trusted.sign("elsewhere", "DNS:db.example,IP:10.0.0.7").unwrap())).await;
    let text = distrust(open(&it.settings_of(&relayed, &it.trusted.0.certificate)).await);
    assert!(text.contains("is for another host") && text.contains("db.example"), "{text}");
    // Inside TLS, so the relay has seen no password so far.
    assert!(!relay.sent().windows(5).any(|bytes| bytes == &PASSWORD.as_bytes()[..5]));

    it.server.restart(None).await;
    let relay = Relay::start(port).await;
    let relayed = it.settings_of(&it.server.url("127.0.0.1", relay.port), &it.trusted.0.certificate);
    let text = distrust(open(&relayed).await);
    assert!(text.contains(&format!("the database server 127.0.0.1:{} does not offer TLS", relay.port)), "{text}");
    assert!(text.contains("Hint: Enable TLS in the server"), "{text}");
    let expected: &[u8] = if kind == Kind::Postgres { &SSL_REQUEST } else { &[] };
    assert_eq!(relay.sent(), expected, "the client has sent more than its request for TLS");
}

async fn new_connections_use_a_rotated_password(kind: Kind) {
    const SECOND: &str = "second+secret";
    let it = Installation::create(kind).await;
    let store = open(&it.settings()).await.unwrap();
    store.snapshot().await.unwrap();

    it.server.set_password(SECOND).await;
    store.snapshot().await.unwrap();
    it.server.disconnect().await;
    let error = store.snapshot().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error:?}");
    it.write_password(SECOND);
    store.snapshot().await.unwrap();

    // The last password stays in use while there is no file.
    fs::remove_file(it.password_file()).unwrap();
    it.server.disconnect().await;
    store.snapshot().await.unwrap();
    store.close().await;
    let error = open(&it.settings()).await.unwrap_err();
    assert!(matches!(error, Error::Settings(_)), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn only_a_postgres_that_proves_its_name_receives_a_login() {
    only_the_server_that_proves_its_name_receives_a_login(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn new_connections_to_postgres_use_a_rotated_password() {
    new_connections_use_a_rotated_password(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs MariaDB"]
async fn only_a_mariadb_that_proves_its_name_receives_a_login() {
    only_the_server_that_proves_its_name_receives_a_login(Kind::Mariadb).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs MariaDB"]
async fn new_connections_to_mariadb_use_a_rotated_password() {
    new_connections_use_a_rotated_password(Kind::Mariadb).await;
}
