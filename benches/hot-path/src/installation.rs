//! A real installation with the backend as its engines: `enginehouse standalone` for master, metadata agent and ZooKeeper, proxies
//! as processes of their own, and for each engine an agent whose server is the backend (engine type `hiveserver2`).
//!
//! Limits that many sessions of one user from one machine would reach are raised; everything else has its default.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use ::tests::certificate::Certificate;
use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use rustls::ClientConfig;

use crate::announcement::Announcement;
use crate::driver::connection::Buffer;
use crate::driver::endpoint::Endpoint;
use crate::driver::session::Session;
use crate::process::{Process, is_running};
use crate::waiting;

/// The user of the driver's sessions.
pub const USER: &str = "driver";
/// The user of control statements.
const ADMIN: &str = "admin";
/// How long a process may take until it is ready.
const START_DEADLINE: Duration = Duration::from_mins(1);
/// How long engines may exist after the installation has ended; then they are killed.
const ENGINES_DEADLINE: Duration = Duration::from_secs(10);
/// More than the sessions of a run.
const MAX_SESSIONS: usize = 12_000;
/// More logins at once than the driver has threads.
const MAX_UNAUTHENTICATED: usize = 64;

/// What to start.
#[derive(Debug, Clone, Copy)]
pub struct Plan<'a> {
    /// The program `enginehouse`.
    pub program: &'a Path,
    pub engines: usize,
    pub proxies: usize,
    /// The certificate of proxies, and with it TLS towards clients and between proxies and engine agents.
    pub tls: Option<&'a Certificate>,
}

/// A running installation. Its parts end in the order of the fields.
pub struct Installation {
    proxies: Vec<Proxy>,
    standalone: Process,
    engines: Engines,
    tls: Option<Arc<ClientConfig>>,
    _folder: tempfile::TempDir,
}

struct Proxy {
    process: Process,
    address: SocketAddr,
}

/// The processes of engines. Those that are left at the end are killed.
struct Engines(Vec<Announcement>);

impl Drop for Engines {
    fn drop(&mut self) {
        let mut pids: Vec<u32> = self.0.iter().flat_map(|engine| [engine.agent, engine.backend]).collect();
        let ended = waiting::until("engines end", ENGINES_DEADLINE, || {
            pids.retain(|pid| is_running(*pid));
            Ok(pids.is_empty().then_some(()))
        });
        if let Err(error) = ended {
            eprintln!("warning: {error:#}; killing {pids:?}");
            for pid in pids.into_iter().filter_map(|pid| Pid::from_raw(pid.cast_signed())) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}

impl Installation {
    /// Starts everything, and waits until all engines serve.
    pub fn start(plan: &Plan<'_>, tls: Option<&Arc<ClientConfig>>) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("hot-path-").tempdir()?;
        let announcements = folder.path().join("backends");
        fs::create_dir(&announcements)?;
        let (data, file) = (folder.path().join("data"), folder.path().join("standalone.toml"));
        fs::write(&file, configuration(&announcements, plan.tls)?)?;
        let mut command = Command::new(plan.program);
        command.args(["standalone", "--listen", "127.0.0.1:0", "--data-dir"]).arg(&data).arg("--config").arg(&file);
        let mut standalone = Process::start("standalone", &mut command, folder.path())?;
        standalone.wait_for_line("ready: ", START_DEADLINE)?;
        let mut proxies = Vec::new();
        for number in 0..plan.proxies {
            proxies.push(Proxy::start(plan.program, number, &data, folder.path())?);
        }
        let mut installation =
            Self { proxies, standalone, engines: Engines(Vec::new()), tls: tls.cloned(), _folder: folder };
        installation.declare(plan.engines)?;
        installation.engines.0 = waiting::until("every backend listens", START_DEADLINE, || {
            installation.standalone.check()?;
            let there = Announcement::read_all(&announcements)?;
            Ok((there.len() == plan.engines).then_some(there))
        })?;
        Ok(installation)
    }

    /// Declares the engines and the tenant, and waits for them.
    fn declare(&self, engines: usize) -> Result<()> {
        let mut buffer = Buffer::default();
        let mut session = Session::open(&self.endpoint(0)?, 0, ADMIN, &mut buffer)?;
        for statement in [
            format!(
                "CREATE RESOURCE UNIT uc_1 ENGINE_TYPE 'hiveserver2', DRIVER_MEMORY '1G', MIN_ENGINES {engines}, \
                 MAX_ENGINES {engines}"
            ),
            "CREATE RESOURCE POOL rp_1 UNIT_LIST ('uc_1')".to_owned(),
            format!("CREATE TENANT t_1 RESOURCE_POOL_LIST ('rp_1'), USER_LIST ('{USER}')"),
        ] {
            session.run(&format!("{statement} WAIT '2m'"), &mut buffer)?;
        }
        session.close(&mut buffer)
    }

    /// Where clients connect to a proxy.
    pub fn endpoint(&self, proxy: usize) -> Result<Endpoint> {
        let proxy = self.proxies.get(proxy).context("no such proxy")?;
        Ok(Endpoint { address: proxy.address, tls: self.tls.clone() })
    }

    /// The backend of the first engine, which the direct path and HAProxy use too.
    pub fn backend(&self) -> Result<Announcement> {
        self.engines.0.first().copied().context("no engine")
    }

    /// The processes of the proxies.
    pub fn proxies(&self) -> Vec<u32> {
        self.proxies.iter().map(|proxy| proxy.process.pid()).collect()
    }

    /// The processes of the engine agents.
    pub fn agents(&self) -> Vec<u32> {
        self.engines.0.iter().map(|engine| engine.agent).collect()
    }

    /// The processes of the backends, one for each engine.
    pub fn backends(&self) -> Vec<u32> {
        self.engines.0.iter().map(|engine| engine.backend).collect()
    }

    /// The process of master, metadata agent and ZooKeeper.
    pub fn standalone(&self) -> u32 {
        self.standalone.pid()
    }
}

impl Proxy {
    /// Starts a proxy of the standalone's installation: with the configuration that it has written, except for two keys.
    fn start(program: &Path, number: usize, data: &Path, folder: &Path) -> Result<Self> {
        let mut command = Command::new(program);
        command.arg("proxy").arg("--config").arg(data.join("configuration.toml"));
        command.envs([("ENGINEHOUSE_PROXY_LISTEN", "127.0.0.1:0"), ("ENGINEHOUSE_MASTER_CANDIDATE", "false")]);
        let mut process = Process::start(&format!("proxy-{number}"), &mut command, folder)?;
        let url = process.wait_for_line("ready: jdbc:hive2://", START_DEADLINE)?;
        let address = url.split('/').next().unwrap_or_default();
        let address = address.parse().with_context(|| format!("the proxy's URL is jdbc:hive2://{url}"))?;
        Ok(Self { process, address })
    }
}

/// The configuration of the standalone, which the proxies share.
fn configuration(announcements: &Path, tls: Option<&Certificate>) -> Result<String> {
    let program = std::env::current_exe().context("cannot determine the path of this program")?;
    let announce = announcements.join("{engine}");
    let arguments = ["backend", "--listen", "{host}:{port}", "--announce"].map(Path::new);
    let words = [&[program.as_path()], &arguments[..], &[announce.as_path()]].concat();
    let words = words.into_iter().map(quoted).collect::<Result<Vec<_>>>()?.join(", ");
    let of_tls = match tls {
        None => String::new(),
        Some(files) => {
            let (certificate, key) = (quoted(&files.certificate)?, quoted(&files.key)?);
            format!(
                "[tls]\nmode = \"required\"\ncertificate_file = {certificate}\nkey_file = {key}\n\
                 [cluster]\ntls = \"required\"\n"
            )
        }
    };
    Ok(format!(
        "[proxy]\n\
         max_connections = {MAX_SESSIONS}\n\
         max_connections_per_user = {MAX_SESSIONS}\n\
         max_connections_per_address = {MAX_SESSIONS}\n\
         max_unauthenticated = {MAX_UNAUTHENTICATED}\n\
         max_unauthenticated_per_address = {MAX_UNAUTHENTICATED}\n\
         connect_rate = 0\n\
         max_sessions_per_user = {MAX_SESSIONS}\n\
         max_sessions_per_tenant = {MAX_SESSIONS}\n\
         unbind_after = \"0s\"\n\
         [hiveserver2]\n\
         command = [{words}]\n\
         unconfined = true\n\
         {of_tls}"
    ))
}

/// A path as a string of TOML.
fn quoted(path: &Path) -> Result<String> {
    let text = path.to_str().with_context(|| format!("not UTF-8: {}", path.display()))?;
    ensure!(!text.contains(['"', '\\']), "a path that cannot be written: {text}");
    Ok(format!("\"{text}\""))
}
