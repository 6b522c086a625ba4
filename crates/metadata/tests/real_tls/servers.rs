//! Database servers of a test's own, from the programs of Debian's packages: with a certificate, another one, or none.
//!
//! Neither runs as root, so a folder of theirs is one that every user may enter.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use sqlx::{AnyConnection, AssertSqlSafe, Connection as _, Executor as _};
use tempfile::TempDir;
use tests::certificate::Certificate;

/// How long a server may take to start or to end.
const DEADLINE: Duration = Duration::from_mins(1);
/// The user whose connections must be encrypted; its database has the same name.
pub const USER: &str = "eh_tls";
/// Characters that have a meaning in URLs are part of it.
pub const PASSWORD: &str = "first%41/?#@:&=+secret";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Postgres,
    Mariadb,
}

/// A server that can be stopped and started again.
pub struct Server {
    kind: Kind,
    folder: TempDir,
    pub port: u16,
    process: Option<Child>,
}

impl Server {
    /// Makes its files and starts it without TLS, as an administrator does who then enables TLS.
    pub async fn create(kind: Kind) -> Self {
        let prefix = format!("enginehouse-{kind:?}-").to_lowercase();
        let folder = tempfile::Builder::new().prefix(&prefix).tempdir_in("/var/tmp").unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        run(Command::new("chown").arg(kind.account()).arg(folder.path()));
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut server = Self { kind, folder, port, process: None };
        server.install();
        server.start(None).await;
        for statement in kind.founding() {
            server.admin(&statement).await;
        }
        if kind == Kind::Postgres {
            let rules =
                format!("host all postgres 127.0.0.1/32 trust\nhostssl all {USER} 127.0.0.1/32 scram-sha-256\n");
            fs::write(server.data().join("pg_hba.conf"), rules).unwrap();
        }
        server
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn install(&self) {
        let mut command = match self.kind {
            Kind::Postgres => {
                let mut command = postgres("initdb");
                command.args(["-U", "postgres", "-A", "trust", "--no-sync", "-D"]).arg(self.data());
                command
            }
            Kind::Mariadb => {
                let mut command = Command::new("mariadb-install-db");
                command.args(["--no-defaults", "--user=mysql", "--auth-root-authentication-method=normal"]);
                command.arg("--skip-test-db").arg(format!("--datadir={}", self.data().display()));
                command
            }
        };
        run(&mut command);
    }

    /// Starts it with the certificate, or without TLS.
    pub async fn start(&mut self, certificate: Option<&Certificate>) {
        let certificate = certificate.map(|files| self.own_copy(files));
        let folder = self.folder.path().display().to_string();
        let mut command = match self.kind {
            Kind::Postgres => {
                let mut command = postgres("postgres");
                command.arg("-D").arg(self.data()).args(["-h", "127.0.0.1", "-p", &self.port.to_string()]);
                command.args(["-c", "unix_socket_directories=", "-c", "fsync=off"]);
                if let Some(Certificate { certificate, key }) = certificate {
                    command.args(["-c", "ssl=on", "-c", &format!("ssl_cert_file={}", certificate.display())]);
                    command.args(["-c", &format!("ssl_key_file={}", key.display())]);
                }
                command
            }
            Kind::Mariadb => {
                let mut command = Command::new("mariadbd");
                command.args(["--no-defaults", "--user=mysql", "--bind-address=127.0.0.1"]);
                command.args([format!("--port={}", self.port), format!("--datadir={}", self.data().display())]);
                command.args([format!("--socket={folder}/socket"), format!("--pid-file={folder}/pid")]);
                command.args(["--innodb-flush-log-at-trx-commit=0", "--innodb-flush-method=nosync", "--debug-no-sync"]);
                if let Some(Certificate { certificate, key }) = certificate {
                    command.arg(format!("--ssl-cert={}", certificate.display()));
                    command.arg(format!("--ssl-key={}", key.display()));
                }
                command
            }
        };
        let log = fs::File::options().create(true).append(true).open(self.folder.path().join("log")).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.process = Some(command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")));
        let since = Instant::now();
        while let Err(error) = self.connect().await {
            assert!(since.elapsed() < DEADLINE, "{:?} did not start: {error}\n{}", self.kind, self.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The files where its account can read them; the key is the account's own.
    fn own_copy(&self, files: &Certificate) -> Certificate {
        let copy = |from: &Path| {
            let to = self.folder.path().join(from.file_name().unwrap());
            fs::copy(from, &to).unwrap();
            fs::set_permissions(&to, fs::Permissions::from_mode(0o600)).unwrap();
            run(Command::new("chown").arg(self.kind.account()).arg(&to));
            to
        };
        Certificate { certificate: copy(&files.certificate), key: copy(&files.key) }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Ends it, with its connections.
    async fn stop(&mut self) {
        let Some(process) = &self.process else { return };
        // PostgreSQL would wait for its clients on SIGTERM.
        signal(process, if self.kind == Kind::Postgres { "-INT" } else { "-TERM" });
        let since = Instant::now();
        while matches!(self.process.as_mut().map(Child::try_wait), Some(Ok(None))) {
            assert!(since.elapsed() < DEADLINE, "{:?} did not end\n{}", self.kind, self.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.process = None;
    }

    /// Starts it again with another certificate, or without TLS.
    pub async fn restart(&mut self, certificate: Option<&Certificate>) {
        self.stop().await;
        self.start(certificate).await;
    }

    /// A connection of the administrator, without TLS.
    async fn connect(&self) -> Result<AnyConnection, sqlx::Error> {
        sqlx::any::install_default_drivers();
        let port = self.port;
        AnyConnection::connect(&match self.kind {
            Kind::Postgres => format!("postgres://postgres@127.0.0.1:{port}/postgres?sslmode=disable"),
            Kind::Mariadb => format!("mysql://root@127.0.0.1:{port}/mysql?ssl-mode=DISABLED"),
        })
        .await
    }

    /// Runs a statement as the administrator.
    pub async fn admin(&self, sql: &str) {
        let mut connection = self.connect().await.unwrap();
        connection.execute(sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))).await.unwrap();
        connection.close().await.unwrap();
    }

    /// Changes the password of the user.
    pub async fn set_password(&self, password: &str) {
        self.admin(&match self.kind {
            Kind::Postgres => format!("ALTER ROLE {USER} PASSWORD '{password}'"),
            Kind::Mariadb => format!("ALTER USER {USER} IDENTIFIED BY '{password}'"),
        })
        .await;
    }

    /// Ends the connections of the user.
    pub async fn disconnect(&self) {
        self.admin(&match self.kind {
            Kind::Postgres => {
                format!("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = '{USER}'")
            }
            Kind::Mariadb => format!("KILL USER {USER}"),
        })
        .await;
    }

    /// The URL of the user, without its password.
    pub fn url(&self, host: &str, port: u16) -> String {
        let scheme = if self.kind == Kind::Postgres { "postgres" } else { "mysql" };
        format!("{scheme}://{USER}@{host}:{port}/{USER}")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        // PostgreSQL ends its sessions at once on SIGQUIT, and kills them after 5 s.
        signal(&process, if self.kind == Kind::Postgres { "-QUIT" } else { "-KILL" });
        let _ = process.wait();
    }
}

impl Kind {
    fn account(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Mariadb => "mysql",
        }
    }

    /// The statements that make the user and its database. The server refuses its connections without TLS.
    fn founding(self) -> Vec<String> {
        match self {
            Self::Postgres => vec![
                format!("CREATE ROLE {USER} LOGIN PASSWORD '{PASSWORD}'"),
                format!("CREATE DATABASE {USER} OWNER {USER}"),
            ],
            Self::Mariadb => vec![
                format!("CREATE USER {USER} IDENTIFIED BY '{PASSWORD}' REQUIRE SSL"),
                format!("CREATE DATABASE {USER}"),
                format!("GRANT ALL ON {USER}.* TO {USER}"),
            ],
        }
    }
}

/// A program of the newest `PostgreSQL`, run as its account.
fn postgres(program: &str) -> Command {
    let versions = fs::read_dir("/usr/lib/postgresql").expect("PostgreSQL is installed");
    let newest = versions.map(|entry| entry.unwrap().path()).max().expect("PostgreSQL is installed");
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--init-groups"]).arg(newest.join("bin").join(program));
    command.current_dir("/var/tmp");
    command
}

fn signal(process: &Child, signal: &str) {
    let _ = Command::new("kill").arg(signal).arg(process.id().to_string()).status();
}

fn run(command: &mut Command) {
    let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}
