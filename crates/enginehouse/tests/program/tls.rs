//! TLS on the port for clients: statements inside it, refusals outside, and certificates that are replaced while they run.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use hs2::{Auth, Client, ClientError, ClientOptions, ClientTls, Session};
use tests::certificate::Certificate;

use crate::installation::{END_DEADLINE, Installation, Signal, ended, eventually, program, signal, text};
use crate::key_files::make_keys;

const DEADLINE: Duration = Duration::from_secs(30);
const NEEDS_TLS: &str = "this login requires TLS: add ssl=true";
/// The clients that run statements while certificates are replaced.
const CLIENTS: usize = 4;
const RELOADS: usize = 6;

/// A standalone with a certificate in files that can be replaced.
struct Served {
    installation: Installation,
    folder: tempfile::TempDir,
    files: Certificate,
}

fn serve(mode: &str, settings: &[(&str, &str)]) -> Served {
    let folder = tempfile::tempdir().unwrap();
    let files = Certificate::create(folder.path(), "server").unwrap();
    let mut installation = Installation::not_started();
    installation.set("ENGINEHOUSE_TLS_MODE", mode);
    installation.set("ENGINEHOUSE_TLS_CERTIFICATE_FILE", files.certificate.to_str().unwrap());
    installation.set("ENGINEHOUSE_TLS_KEY_FILE", files.key.to_str().unwrap());
    for (variable, value) in settings {
        installation.set(variable, value);
    }
    installation.start_again();
    Served { installation, folder, files }
}

impl Served {
    /// `enginehouse sql` over TLS that trusts the certificate.
    fn sql(&self, ca: &Path, statement: &str) -> Result<String, String> {
        let output = self.installation.sql().arg("--tls").arg("--ca").arg(ca).args(["-e", statement]).output().unwrap();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    fn options(&self, ca: &Path) -> ClientOptions {
        let tls = Some(ClientTls::from_ca_file(ca).unwrap());
        ClientOptions { tls, ..ClientOptions::new(self.installation.address.clone(), Auth::user("admin", "")) }
    }

    /// Replaces both files, each at once, and asks for a reload.
    fn replace(&self, by: &Certificate) {
        for (from, to) in [(&by.certificate, &self.files.certificate), (&by.key, &self.files.key)] {
            let new = to.with_extension("new");
            std::fs::copy(from, &new).unwrap();
            std::fs::rename(&new, to).unwrap();
        }
        signal(self.installation.pid(), Signal::HUP);
    }

    fn log_has(&self, line: &str) -> bool {
        self.installation.log().contains(line)
    }

    /// The response to a request outside TLS.
    fn http(&self, head: &str) -> String {
        let mut stream = TcpStream::connect(&self.installation.address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        write!(stream, "{head} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut response = String::new();
        let _ = stream.read_to_string(&mut response);
        response
    }
}

fn file(folder: &Path, name: &str, text: &[u8]) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn where_tls_is_required_the_program_serves_inside_it_only() {
    let served = serve("required", &[]);
    assert_eq!(served.installation.url_options, ";ssl=true");
    assert!(served.sql(&served.files.certificate, "SHOW TENANTS").unwrap().starts_with("tenant"));
    let line = "refused a client without TLS: its login requires TLS address=127.0.0.1";
    assert!(served.http("GET /livez").starts_with("HTTP/1.1 200") && !served.log_has(line), "a probe needs no TLS");
    let refused = served.http("POST /");
    assert!(refused.starts_with("HTTP/1.1 426") && refused.contains(NEEDS_TLS), "{refused}");
    eventually("the refused client over HTTP is logged", || served.log_has(line));
    let error = served.installation.try_say("SHOW TENANTS").unwrap_err();
    assert!(error.contains(NEEDS_TLS), "{error}");
    assert_eq!(served.installation.log().matches(line).count(), 1, "one line in a minute");
    let other = Certificate::create(served.folder.path(), "other").unwrap();
    let error = served.sql(&other.certificate, "SHOW TENANTS").unwrap_err();
    assert!(error.contains("TLS handshake failed: invalid peer certificate") && error.contains("--ca FILE"), "{error}");
    eventually("the failed handshake is logged", || served.log_has("TLS handshake failed address=127.0.0.1"));
    for probe in ["GET /livez", "GET /readyz"] {
        // A proxy is ready once it has read the catalog.
        eventually(probe, || served.http(probe).starts_with("HTTP/1.1 200"));
    }
    assert!(served.http("POST /").starts_with("HTTP/1.1 4"), "{}", served.http("POST /"));
    let mut served = served;
    assert!(served.installation.stop().success());
    assert_eq!(served.installation.complaints(), Vec::<String>::new());
}

#[test]
fn a_secret_that_is_replaced_through_its_link_is_read_again() {
    // The files as a kubelet mounts them: links into a folder, which a link to that folder names.
    let folder = tempfile::tempdir().unwrap();
    let mount = folder.path().join("mount");
    std::fs::create_dir(&mount).unwrap();
    let certificates = ["old", "new"].map(|name| Certificate::create(folder.path(), name).unwrap());
    let project = |version: &str, from: &Certificate| {
        let payload = mount.join(version);
        std::fs::create_dir(&payload).unwrap();
        for (file, name) in [(&from.certificate, "tls.crt"), (&from.key, "tls.key")] {
            std::fs::copy(file, payload.join(name)).unwrap();
            std::fs::set_permissions(payload.join(name), std::fs::Permissions::from_mode(0o400)).unwrap();
        }
        let link = mount.join("..data_tmp");
        symlink(version, &link).unwrap();
        std::fs::rename(&link, mount.join("..data")).unwrap();
    };
    project("..1", &certificates[0]);
    for name in ["tls.crt", "tls.key"] {
        symlink(Path::new("..data").join(name), mount.join(name)).unwrap();
    }
    let mut installation = Installation::not_started();
    installation.set("ENGINEHOUSE_TLS_MODE", "required");
    installation.set("ENGINEHOUSE_TLS_RELOAD", "200ms");
    let files = ["tls.crt", "tls.key"].map(|name| mount.join(name));
    installation.set("ENGINEHOUSE_TLS_CERTIFICATE_FILE", files[0].to_str().unwrap());
    installation.set("ENGINEHOUSE_TLS_KEY_FILE", files[1].to_str().unwrap());
    installation.start_again();
    let [certificate, key] = files;
    let served = Served { installation, folder, files: Certificate { certificate, key } };
    served.sql(&certificates[0].certificate, "SHOW TENANTS").unwrap();
    project("..2", &certificates[1]);
    std::fs::remove_dir_all(mount.join("..1")).unwrap();
    let new = &certificates[1].certificate;
    eventually("the new certificate is presented", || served.sql(new, "SHOW TENANTS").is_ok());
    assert_eq!(served.installation.complaints(), Vec::<String>::new());
}

#[test]
fn where_tls_is_off_a_tls_client_learns_why() {
    let folder = tempfile::tempdir().unwrap();
    let files = Certificate::create(folder.path(), "any").unwrap();
    let served = Served { installation: Installation::start(), folder, files };
    assert_eq!(served.installation.url_options, "");
    let error = served.sql(&served.files.certificate, "SHOW TENANTS").unwrap_err();
    assert!(error.contains("the server does not speak TLS on this port"), "{error}");
    assert!(served.log_has("refused a TLS client: this listener does not speak TLS address=127.0.0.1"));
}

#[test]
fn with_optional_tls_passwords_are_refused_outside_and_trusted_names_are_not() {
    let served = serve("optional", &[]);
    assert_eq!(served.installation.url_options, "");
    served.installation.say("SHOW TENANTS");
    served.sql(&served.files.certificate, "SHOW TENANTS").unwrap();

    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users");
    let mut passwd = program();
    passwd.arg("passwd").arg("--file").arg(&users).arg("admin");
    let mut child = passwd.stdin(std::process::Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"secret\n").unwrap();
    assert!(child.wait().unwrap().success());
    let settings =
        [("ENGINEHOUSE_ACCESS_AUTHENTICATION", "file"), ("ENGINEHOUSE_ACCESS_USERS_FILE", users.to_str().unwrap())];
    let served = serve("optional", &settings);
    assert_eq!(served.installation.url_options, ";ssl=true");
    let login = |tls: bool, password: &str| {
        let mut command = served.installation.sql();
        command.args(["-p", password, "-e", "SHOW TENANTS"]);
        if tls {
            command.arg("--ca").arg(&served.files.certificate);
        }
        let output = command.output().unwrap();
        (output.status.success(), text(&output.stderr))
    };
    // The same outside TLS with the right and the wrong password: it is not checked there.
    for password in ["secret", "wrong"] {
        let (success, error) = login(false, password);
        assert!(!success && error.contains(NEEDS_TLS), "{error}");
    }
    let (success, error) = login(true, "secret");
    assert!(success, "{error}");
    let (success, error) = login(true, "wrong");
    assert!(!success && error.contains("authentication failed"), "{error}");
    let basic = served.http("POST / HTTP/1.1\r\nAuthorization: Basic YWRtaW46c2VjcmV0\r\nContent-Length: 0\r\nX:");
    assert!(basic.starts_with("HTTP/1.1 426") && basic.contains(NEEDS_TLS), "{basic}");
}

/// Runs statements until it is stopped: half of them over one connection, half over a new one each.
async fn statements(options: ClientOptions, stop: Arc<AtomicBool>, done: Arc<AtomicUsize>) -> Result<(), ClientError> {
    let mut kept = Session::open(Client::connect(&options).await?, &[]).await?;
    while !stop.load(Ordering::Relaxed) {
        kept.run("SHOW TENANTS", DEADLINE).await?;
        let mut fresh = Session::open(Client::connect(&options).await?, &[]).await?;
        fresh.run("SHOW RESOURCE POOLS", DEADLINE).await?;
        fresh.close().await?;
        done.fetch_add(2, Ordering::Relaxed);
    }
    kept.close().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_replaced_under_load_without_a_failed_statement() {
    let served = serve("required", &[("ENGINEHOUSE_TLS_RELOAD", "1h")]);
    let certificates = ["a", "b"].map(|name| Certificate::create(served.folder.path(), name).unwrap());
    let read = |path: &Path| std::fs::read(path).unwrap();
    let all = [&served.files, &certificates[0], &certificates[1]].map(|files| read(&files.certificate)).concat();
    let all = file(served.folder.path(), "all.crt", &all);
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| tokio::spawn(statements(served.options(&all), Arc::clone(&stop), Arc::clone(&done))))
        .collect();
    for n in 0..RELOADS {
        let next = &certificates[n % 2];
        let before = done.load(Ordering::Relaxed);
        served.replace(next);
        let only = served.options(&next.certificate);
        tokio::time::timeout(DEADLINE, async {
            while Client::connect(&only).await.is_err() || done.load(Ordering::Relaxed) <= before {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await
        .unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap().unwrap();
    }
    println!("{} statements during {RELOADS} reloads", done.load(Ordering::Relaxed));
    assert_eq!(served.installation.complaints(), Vec::<String>::new());
}

#[test]
fn a_bad_new_certificate_keeps_the_old_one_and_a_good_one_follows() {
    // Without a signal, so that the interval is tested as well.
    let served = serve("required", &[("ENGINEHOUSE_TLS_RELOAD", "200ms")]);
    let (old, other) = (served.folder.path().join("old.crt"), Certificate::create(served.folder.path(), "b").unwrap());
    std::fs::copy(&served.files.certificate, &old).unwrap();
    // Another certificate with the old key.
    std::fs::copy(&other.certificate, &served.files.certificate).unwrap();
    let kept = "could not reload the TLS certificate; the one that was read before stays in use";
    eventually("the bad pair is reported", || served.log_has(kept));
    assert!(served.log_has("does not belong to the certificate"), "{}", served.installation.log());
    served.sql(&old, "SHOW TENANTS").unwrap();
    std::fs::write(&served.files.certificate, "nothing").unwrap();
    std::fs::remove_file(&served.files.key).unwrap();
    served.sql(&old, "SHOW TENANTS").unwrap();
    served.replace(&other);
    eventually("the new certificate is presented", || served.sql(&other.certificate, "SHOW TENANTS").is_ok());
    eventually("the replacement is logged", || served.log_has("replaced the TLS certificate"));
    // One line for all failures of a minute, and one for the signal at most.
    let lines = served.installation.complaints();
    assert!((1..=2).contains(&lines.len()), "{lines:?}");
}

#[test]
fn a_certificate_that_cannot_be_used_is_refused_at_start() {
    let folder = tempfile::tempdir().unwrap();
    let [good, other] = ["good", "other"].map(|name| Certificate::create(folder.path(), name).unwrap());
    let keys = make_keys(folder.path());
    for (certificate, key, expected) in [
        (&good.certificate, &other.key, "does not belong to the certificate"),
        (&good.key, &good.key, "there is no certificate"),
        (&folder.path().join("absent"), &good.key, "cannot read the certificate"),
    ] {
        let configuration = format!(
            "[cluster]\nkeys = {keys:?}\n[proxy]\nlisten = \"127.0.0.1:0\"\n[tls]\nmode = \"required\"\n\
             certificate_file = {certificate:?}\nkey_file = {key:?}\n"
        );
        let configuration = file(folder.path(), "c.toml", configuration.as_bytes());
        for role in [&["config", "check"][..], &["proxy"]] {
            let output = program().args(role).arg("--config").arg(&configuration).output().unwrap();
            let error = text(&output.stderr);
            assert!(output.status.code() == Some(1) && error.contains(expected) && error.contains("tls."), "{error}");
        }
    }
}

#[test]
fn the_certificate_of_the_page_is_served_and_trusted() {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/security.md")).unwrap();
    let blocks = page.split("```sh\n").skip(1).filter_map(|rest| rest.split("```\n").next());
    let commands = blocks.into_iter().find(|block| block.starts_with("openssl req")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let output = std::process::Command::new("sh").args(["-ec", commands]).current_dir(&folder).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let files = ["crt", "key"].map(|suffix| folder.path().join("server").with_extension(suffix));
    let mut installation = Installation::not_started();
    installation.set("ENGINEHOUSE_TLS_MODE", "required");
    installation.set("ENGINEHOUSE_TLS_CERTIFICATE_FILE", files[0].to_str().unwrap());
    installation.set("ENGINEHOUSE_TLS_KEY_FILE", files[1].to_str().unwrap());
    installation.start_again();
    let [certificate, key] = files.clone();
    let served = Served { installation, folder, files: Certificate { certificate, key } };
    served.sql(&files[0], "SHOW TENANTS").unwrap();
}

#[test]
fn standalone_listens_elsewhere_only_with_passwords_inside_tls() {
    let folder = tempfile::tempdir().unwrap();
    let files = Certificate::create(folder.path(), "server").unwrap();
    let tls = [
        ("ENGINEHOUSE_TLS_MODE", "required"),
        ("ENGINEHOUSE_TLS_CERTIFICATE_FILE", files.certificate.to_str().unwrap()),
        ("ENGINEHOUSE_TLS_KEY_FILE", files.key.to_str().unwrap()),
    ];
    let refused = |environment: &[(&str, &str)], expected: &str| {
        let mut command = program();
        command.args(["standalone", "--listen", "0.0.0.0:0", "--data-dir"]).arg(folder.path().join("data"));
        let output = command.envs(environment.iter().copied()).output().unwrap();
        let error = text(&output.stderr);
        assert!(output.status.code() == Some(1) && error.contains(expected), "{error}");
    };
    refused(&tls, "trusts every user name");
    refused(&tls, "\n  enginehouse passwd --file users admin\n  openssl req -x509 ");
    refused(&[("ENGINEHOUSE_ACCESS_AUTHENTICATION", "file")], "receives passwords unencrypted");
    let users = file(folder.path(), "users", b"");
    std::fs::set_permissions(&users, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let mut command = program();
    command.args(["standalone", "--listen", "0.0.0.0:0", "--data-dir"]).arg(folder.path().join("data"));
    command.envs(tls).env("ENGINEHOUSE_ACCESS_AUTHENTICATION", "file").env("ENGINEHOUSE_ACCESS_USERS_FILE", &users);
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("ready: jdbc:hive2://0.0.0.0:") && line.ends_with("/;ssl=true\n"), "{line}");
    signal(child.id(), Signal::TERM);
    // What else it prints has no reader, which is no failure.
    ended(&mut child, END_DEADLINE);
}
