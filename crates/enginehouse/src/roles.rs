//! Puts the roles together from the configuration: the same parts whether they run in one process or in many.

use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use coordination::{Identity, Layout};
use engine_agent::metadata::{Listener, MetadataAgent};
use master::Master;
use metadata::Store;
use model::advertised::Advertised;
use model::change::Rules;
use model::clock::{SharedClock, SystemClock};
use model::configuration::Defaults;
use model::credential::ClusterSecret;
use model::fingerprint::FingerprintKey;
use orchestrator::Orchestrator;
use proxy::Proxy;

use crate::configuration::{Configuration, ProxySection};
use crate::{open_files, orchestrators};

/// The longest secret file that is read, in bytes.
const MAX_SECRET_BYTES: u64 = 4_096;

/// Reads the cluster secret; refuses a file that others can read. A file of root's may be read by its group, which is how
/// Kubernetes gives a secret to a process that isn't root.
pub fn read_secret(path: &Path) -> anyhow::Result<ClusterSecret> {
    let file = std::fs::File::open(path).map_err(|error| {
        anyhow::anyhow!("can't read the cluster secret {}: {error}{}", path.display(), whence(path))
    })?;
    let metadata = file.metadata()?;
    if is_open_to_others(metadata.permissions().mode(), metadata.uid(), rustix::process::geteuid().as_raw()) {
        bail!("the cluster secret {} can be read by others\nHint: chmod 600 {}", path.display(), path.display());
    }
    let mut text = String::new();
    file.take(MAX_SECRET_BYTES).read_to_string(&mut text)?;
    ClusterSecret::new(text.trim()).map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))
}

/// Where a relative path was looked for.
fn whence(path: &Path) -> String {
    match std::env::current_dir() {
        Ok(folder) if path.is_relative() => {
            format!("\nHint: relative paths are relative to the working directory, which is {}", folder.display())
        }
        _ => String::new(),
    }
}

fn is_open_to_others(mode: u32, owner: u32, ourselves: u32) -> bool {
    let ours = if owner == 0 && ourselves != 0 { 0o740 } else { 0o700 };
    mode & 0o777 & !ours != 0
}

/// How ZooKeeper is reached under an identity.
pub fn zookeeper(configuration: &Configuration, identity: Identity) -> anyhow::Result<coordination::SessionSettings> {
    let section = &configuration.zookeeper;
    let namespace = &configuration.proxy.discovery_namespace;
    let layout = Layout::new(&section.root, (!namespace.is_empty()).then_some(namespace.as_str()))
        .map_err(|error| anyhow::anyhow!("zookeeper.root: {error}"))?;
    let mut settings = coordination::SessionSettings::new(section.connect.clone(), layout, identity);
    settings.session_timeout = section.session_timeout.0;
    settings.watch_events = section.watch_events;
    Ok(settings)
}

fn defaults(configuration: &Configuration) -> Defaults {
    Defaults {
        engine_type: configuration.engines.default_type,
        images: configuration.engines.images.clone(),
        needs_nodes: configuration.orchestrator.kind.needs_nodes(),
    }
}

fn plan_limits(configuration: &Configuration) -> planner::Limits {
    let agent = &configuration.metadata_agent;
    planner::Limits {
        surge: configuration.master.surge,
        drain_grace_ms: agent.drain_grace.0.as_millis() as i64,
        drain_grace_max_ms: agent.drain_grace_max.0.as_millis() as i64,
        alter_deadline_ms: agent.alter_deadline.0.as_millis() as i64,
        session_timeout_ms: configuration.zookeeper.session_timeout.0.as_millis() as u64,
        start_deadline_ms: configuration.engines.start_deadline.0.as_millis() as u64,
        replace_after_ms: configuration.master.replace_after.0.as_millis() as u64,
    }
}

/// Brings the tables of the metadata database up to date; answers the version of the schema.
pub async fn migrate(configuration: &Configuration) -> anyhow::Result<i64> {
    Store::migrate(&metadata::StoreSettings::new(&configuration.database.url))
        .await
        .map_err(|error| anyhow::anyhow!("{}", error.user_error()))
        .with_context(|| cant_open(configuration))
}

/// Opens the metadata database.
pub async fn open_store(
    configuration: &Configuration,
    secret: &ClusterSecret,
    clock: &SharedClock,
) -> anyhow::Result<Store> {
    Store::open(&metadata::StoreSettings::new(&configuration.database.url), rules(configuration, secret), clock.clone())
        .await
        .map_err(|error| anyhow::anyhow!("{}", error.user_error()))
        .with_context(|| cant_open(configuration))
}

fn cant_open(configuration: &Configuration) -> String {
    let shown = crate::configuration::without_password(&configuration.database.url);
    format!("can't use the metadata database {shown}")
}

fn rules(configuration: &Configuration, secret: &ClusterSecret) -> Rules {
    Rules {
        defaults: defaults(configuration),
        secret_keys: configuration.metadata_agent.secret_keys.clone(),
        fingerprint_key: FingerprintKey::from_secret(secret),
        max_engines: configuration.metadata_agent.max_engines,
    }
}

/// Takes the port of a metadata agent.
pub async fn metadata_agent_port(configuration: &Configuration) -> anyhow::Result<Listener> {
    Listener::bind(configuration.metadata_agent.listen, hs2::Limits::default())
        .await
        .map_err(|error| anyhow::anyhow!("the metadata agent did not start: {error}"))
}

/// Starts a metadata agent on its port.
pub fn metadata_agent(
    listener: Listener,
    configuration: &Configuration,
    secret: &ClusterSecret,
    store: Store,
    clock: &SharedClock,
) -> anyhow::Result<MetadataAgent> {
    let section = &configuration.metadata_agent;
    let settings = engine_agent::metadata::Settings {
        listen: section.listen,
        advertise: (!section.advertise.is_empty()).then(|| section.advertise.clone()),
        zookeeper: zookeeper(configuration, Identity::Agent(secret.clone()))?,
        secret: secret.clone(),
        cluster: configuration.cluster.name.clone(),
        admins: configuration.access.admins.clone(),
        rules: rules(configuration, secret),
        plan_limits: plan_limits(configuration),
        alter_wait: section.alter_wait.0,
        alter_grace: configuration.master.alter_grace.0,
        drain_grace: section.drain_grace.0,
        drain_grace_max: section.drain_grace_max.0,
        start_deadline: configuration.engines.start_deadline.0,
        tick_interval: configuration.master.tick_interval.0,
        limits: hs2::Limits::default(),
    };
    MetadataAgent::serve(listener, settings, store, clock.clone()).map_err(Into::into)
}

/// Starts a proxy.
pub async fn proxy(
    configuration: &Configuration,
    secret: &ClusterSecret,
    clock: &SharedClock,
) -> anyhow::Result<Proxy> {
    let section = &configuration.proxy;
    let connections = section.max_connections.min(open_files::connections());
    if connections < section.max_connections {
        tracing::warn!(
            connections,
            configured = section.max_connections,
            "this process may open too few files for proxy.max_connections, and serves fewer; raise ulimit -n"
        );
    }
    let wire = hs2::Limits {
        connections,
        connections_per_user: section.max_connections_per_user,
        connections_per_peer: section.max_connections_per_address,
        ..hs2::Limits::default()
    };
    let mut hosts = section.hosts.clone();
    if !section.advertise.is_empty() {
        let advertised = Advertised::new("proxy.advertise", &section.advertise, section.listen);
        hosts.push(advertised.map_err(|error| anyhow::anyhow!("{}", error.text()))?.host);
    }
    let settings = proxy::Settings {
        listen: section.listen,
        discovery: section.registers().then(|| section.advertise.clone()),
        hosts,
        zookeeper: zookeeper(configuration, Identity::Proxy(secret.clone()))?,
        secret: secret.clone(),
        admins: configuration.access.admins.clone(),
        snapshot_poll: section.snapshot_poll.0,
        bind_deadline: section.bind_deadline.0,
        load_cache: std::time::Duration::from_millis(section.load_cache_ms),
        product: product(section),
        limits: proxy::Limits {
            wire,
            sessions_per_user: section.max_sessions_per_user,
            session_settings_bytes: section.max_session_setting_bytes,
            session_statement_bytes: section.max_session_statement_bytes,
            held_bytes: section.max_held_bytes,
            ..proxy::Limits::default()
        },
    };
    if configuration.access.insecure && !section.listens_on_loopback() {
        tracing::warn!(listen = %section.listen, "authentication \"none\" on an address that is not loopback: anybody there can say that he is an admin");
    }
    Proxy::start(settings, clock.clone()).await.map_err(|error| {
        let in_use = matches!(error, proxy::StartError::Listen { .. });
        let hint =
            "\nHint: proxy.listen names another address (standalone: --listen HOST:PORT); port 0 takes a free one";
        anyhow::anyhow!("{error}{}", if in_use { hint } else { "" })
    })
}

/// The product name and version that clients receive.
fn product(section: &ProxySection) -> proxy::Product {
    let own = proxy::Product::default();
    let version = if section.product_version.is_empty() { own.version } else { section.product_version.clone() };
    proxy::Product { name: section.product_name.clone(), version }
}

/// Starts the candidate for master that belongs to a proxy.
pub fn master(
    configuration: &Configuration,
    secret: &ClusterSecret,
    orchestrator: Arc<dyn Orchestrator>,
    holder: String,
    clock: &SharedClock,
) -> anyhow::Result<Master> {
    let section = &configuration.master;
    let otherwise = master::Settings::default();
    let call_deadline_ms = configuration.kubernetes.call_deadline.0.as_millis() as u64;
    let settings = master::Settings {
        cluster: configuration.cluster.name.clone(),
        defaults: defaults(configuration),
        limits: plan_limits(configuration),
        tick_ms: section.tick_interval.0.as_millis() as u64,
        alter_grace_ms: section.alter_grace.0.as_millis() as u64,
        status_poll_ms: section.status_poll.0.as_millis() as u64,
        candidate: section.candidate,
        // An effect is one call to the orchestrator at least.
        effect_deadline_ms: otherwise.effect_deadline_ms.max(call_deadline_ms),
        ..otherwise
    };
    let parts = master::Parts {
        coordination: zookeeper(configuration, Identity::Master(secret.clone()))?,
        secret: secret.clone(),
        orchestrator,
        launcher: Arc::new(orchestrators::launcher(configuration, secret)?),
        clock: clock.clone(),
        holder,
    };
    Ok(Master::start(settings, parts))
}

/// The machine's clocks.
pub fn clock() -> SharedClock {
    SystemClock::shared()
}

/// Who this process is, for people who read the master row.
pub fn holder(role: &str) -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{role}@{host}:{}", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_read_from_a_file_of_ones_own_or_one_that_root_gives_to_a_group() {
        for (mode, owner, ourselves, open) in [
            (0o100_600, 1_000, 1_000, false),
            (0o100_400, 0, 0, false),
            (0o100_440, 0, 10_001, false),
            (0o100_640, 0, 10_001, false),
            (0o100_440, 10_001, 10_001, true),
            (0o100_440, 0, 0, true),
            (0o100_460, 0, 10_001, true),
            (0o100_444, 0, 10_001, true),
            (0o100_644, 1_000, 1_000, true),
        ] {
            assert_eq!(is_open_to_others(mode, owner, ourselves), open, "{mode:o} {owner} {ourselves}");
        }
    }
}
