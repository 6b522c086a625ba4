//! The suite inside TLS, on a real ZooKeeper with a certificate that is made here; and servers that are not trusted. Only programs
//! with the cargo feature `zookeeper-tls` have this, so `tests/run --long` builds one.

use std::fs;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use coordination::{Error, Session, ZookeeperTls, probe_handshake};
use tempfile::TempDir;
use tests::certificate::{Authority, Certificate};
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::suite::{self, Installation, Servers};

/// How long the server may take to start.
const DEADLINE: Duration = Duration::from_mins(1);
const THIS_HOST: &str = "DNS:localhost,IP:127.0.0.1";

/// A ZooKeeper of Debian's packages with a port for TLS and one for plain clients.
struct Zookeeper {
    folder: TempDir,
    process: Child,
    secure: u16,
    plain: u16,
}

impl Zookeeper {
    async fn start(certificate: &Certificate) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let key_store = folder.path().join("server.pem");
        let texts = [&certificate.key, &certificate.certificate].map(|file| fs::read_to_string(file).unwrap());
        fs::write(&key_store, texts.concat()).unwrap();
        let (secure, plain) = (free_port(), free_port());
        let settings = folder.path().join("zoo.cfg");
        let text = [
            "tickTime=200",
            "minSessionTimeout=500",
            "maxSessionTimeout=60000",
            "clientPortAddress=127.0.0.1",
            "secureClientPortAddress=127.0.0.1",
            "admin.enableServer=false",
            "maxClientCnxns=0",
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.keyStore.type=PEM",
            "ssl.clientAuth=none",
            &format!("dataDir={}/data", folder.path().display()),
            &format!("ssl.keyStore.location={}", key_store.display()),
            &format!("clientPort={plain}"),
            &format!("secureClientPort={secure}"),
        ];
        fs::write(&settings, text.join("\n")).unwrap();
        let log = fs::File::create(folder.path().join("log")).unwrap();
        let process = Command::new("java")
            .args(["-Xmx256m", "-Dzookeeper.forceSync=no", "-cp", "/etc/zookeeper/conf:/usr/share/java/*"])
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(&settings)
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .expect("ZooKeeper is installed");
        let started = Self { folder, process, secure, plain };
        let since = Instant::now();
        for port in [plain, secure] {
            while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
                assert!(since.elapsed() < DEADLINE, "ZooKeeper did not start\n{}", started.log());
                sleep(Duration::from_millis(100)).await;
            }
        }
        started
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn at(&self, host: &str, tls: ZookeeperTls) -> Servers {
        let Self { secure, plain, .. } = self;
        Servers { ours: format!("{host}:{secure}"), plain: format!("127.0.0.1:{plain}"), tls: Some(tls) }
    }
}

impl Drop for Zookeeper {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn trusting(authority: &Authority) -> ZookeeperTls {
    ZookeeperTls::from_pem(&fs::read_to_string(&authority.0.certificate).unwrap()).unwrap()
}

/// Why no session is established; found before the library's own deadline, which is longer than a session timeout.
async fn refusal(servers: &Servers) -> String {
    let installation = Installation::at(servers, "/eh-tls/suite");
    let mut settings = installation.settings(installation.master());
    settings.connect_timeout = Duration::from_secs(3);
    let error = Session::connect(&settings, &installation.clock).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
    let limit = Duration::from_secs(5);
    let probed = probe_handshake(&servers.ours, servers.tls.as_ref(), limit, limit).await.unwrap_err();
    let (text, probed) = (error.to_string(), probed.to_string());
    assert!(text.ends_with(probed.trim_start_matches("zookeeper is not available: ")), "{text} <> {probed}");
    text
}

mod long_only {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "needs ZooKeeper's programs"]
    async fn the_suite_passes_inside_tls_on_a_real_zookeeper() {
        let files = tempfile::tempdir().unwrap();
        let authority = Authority::create(files.path(), "trusted").unwrap();
        let server = Zookeeper::start(&authority.sign("server", THIS_HOST).unwrap()).await;
        // With a second CA in the file, and a comment.
        let other = Authority::create(files.path(), "other").unwrap();
        let texts = [&other, &authority].map(|it| fs::read_to_string(&it.0.certificate).unwrap());
        let tls = ZookeeperTls::from_pem(&format!("# two CAs\n{}", texts.concat())).unwrap();
        let cases = suite::run_at("real zookeeper, TLS", &server.at("127.0.0.1", tls.clone())).await;
        assert_eq!(cases, suite::CASES.len());
        let by_name = Installation::at(&server.at("localhost", tls), "/eh-tls/suite");
        by_name.session(by_name.master()).await.close().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "needs ZooKeeper's programs"]
    async fn only_a_zookeeper_that_proves_its_name_receives_a_login() {
        let files = tempfile::tempdir().unwrap();
        let authority = Authority::create(files.path(), "trusted").unwrap();
        let other = Authority::create(files.path(), "other").unwrap();
        let server = Zookeeper::start(&authority.sign("server", THIS_HOST).unwrap()).await;
        let text = refusal(&server.at("127.0.0.1", trusting(&other))).await;
        assert!(text.contains("its certificate was signed by an unknown CA"), "{text}");
        let without_tls =
            Servers { ours: format!("127.0.0.1:{}", server.plain), ..server.at("", trusting(&authority)) };
        let text = refusal(&without_tls).await;
        assert!(text.contains("it does not offer TLS on this port"), "{text}");
        // A plain client at the port for TLS.
        let plain = Servers { tls: None, ..server.at("127.0.0.1", trusting(&authority)) };
        let installation = Installation::at(&plain, "/eh-tls/suite");
        let mut settings = installation.settings(installation.master());
        settings.connect_timeout = Duration::from_secs(3);
        Session::connect(&settings, &installation.clock).await.unwrap_err();

        let elsewhere = Zookeeper::start(&authority.sign("elsewhere", "DNS:zk.example").unwrap()).await;
        let text = refusal(&elsewhere.at("127.0.0.1", trusting(&authority))).await;
        assert!(text.contains("its certificate is for another host") && text.contains("zk.example"), "{text}");
    }

    #[test]
    fn bad_roots_and_hosts_are_refused_before_any_connection() {
        let error = |pem: &str| ZookeeperTls::from_pem(pem).unwrap_err().to_string();
        assert_eq!(error("no certificate"), "there are no certificates");
        assert!(!error("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").is_empty());
        for (server, can_prove) in [("zk1:2281", true), ("10.0.0.7:1", true), ("[::1]:1", true), ("zk 1:1", false)] {
            assert_eq!(ZookeeperTls::can_prove(server), can_prove, "{server}");
        }
    }
}
