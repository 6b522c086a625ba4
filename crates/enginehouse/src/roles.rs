//! The composition of the roles from the configuration, in one process or in several.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use agent_api::ClusterTls;
use anyhow::{Context as _, bail};
use coordination::{Identity, Layout};
use engine_agent::metadata::{Listener, MetadataAgent};
use hs2::RequestMemory;
use keys::role::RoleSecrets;
use keys::{Current, MasterKeys, MetadataAgentKeys, ProxyKeys, RoleKeys};
use master::Master;
use metadata::Store;
use model::advertised::Advertised;
use model::cause::chain;
use model::change::Rules;
use model::clock::{SharedClock, SystemClock};
use model::configuration::Defaults;
use model::fingerprint::FingerprintKey;
use model::sealing::Sealing;
use orchestrator::Orchestrator;
use proxy::Proxy;

use crate::configuration::{Authentication, Configuration, ProxySection, Span};
use crate::engine_types::LaunchParts;
use crate::{client_authentication, listener_tls, open_files, orchestrators};

/// How to resolve an address that is in use.
const LISTEN_HINT: &str =
    "Hint: Choose another address with proxy.listen (standalone: --listen HOST:PORT); port 0 selects a free port.";

/// The settings of ZooKeeper for an identity.
pub fn zookeeper(configuration: &Configuration, identity: Identity) -> anyhow::Result<coordination::SessionSettings> {
    let section = &configuration.zookeeper;
    let namespace = &configuration.proxy.discovery_namespace;
    let layout =
        Layout::new(&section.root, (!namespace.is_empty()).then_some(namespace.as_str())).context("zookeeper.root")?;
    let mut settings = coordination::SessionSettings::new(section.connect.clone(), layout, identity);
    settings.tls = section.trust()?;
    settings.session_timeout = section.session_timeout.0;
    settings.watch_events = section.watch_events;
    Ok(settings)
}

/// Warns at each start of a role that its passwords are sent in clear.
pub fn warn_about_zookeeper(configuration: &Configuration) {
    if configuration.zookeeper.is_sent_in_clear() {
        tracing::warn!(
            "connections to ZooKeeper on another machine are not encrypted, so that the passwords of roles and engines are sent in clear (zookeeper.tls)"
        );
    }
}

fn defaults(configuration: &Configuration) -> anyhow::Result<Defaults> {
    Ok(Defaults {
        engine_type: configuration.engines.default_type,
        images: configuration.engines.images.clone(),
        instances: configuration.orchestrator.kind.instances(),
        on_demand: configuration.engines.on_demand(),
        refused_types: LaunchParts::new(configuration)?.refused_types(),
    })
}

fn plan_limits(configuration: &Configuration) -> planner::Limits {
    let agent = &configuration.metadata_agent;
    planner::Limits {
        surge: configuration.master.surge,
        drain_grace: agent.drain_grace.0,
        drain_grace_max: agent.drain_grace_max.0,
        alter_deadline: agent.alter_deadline.0,
        session_timeout: configuration.zookeeper.session_timeout.0,
        start_deadline: configuration.engines.start_deadline.0,
        replace_after: configuration.master.replace_after.0,
        node_grace: configuration.master.node_grace.0,
        reservation_ttl: configuration.reservations.ttl.0,
        patience: configuration.reservations.patience.0,
        burst: configuration.master.burst,
        cancel_after: configuration.master.cancel_after.0,
        cooldown: configuration.master.cooldown.0,
    }
}

/// Migrates the metadata database; returns the version of its schema.
pub async fn migrate(configuration: &Configuration) -> anyhow::Result<i64> {
    Store::migrate(&configuration.database.settings())
        .await
        .map_err(|error| error.user_error())
        .with_context(|| cannot_open(configuration))
}

/// Opens the metadata database.
pub async fn open_store(
    configuration: &Configuration,
    keys: &Current<MetadataAgentKeys>,
    clock: &SharedClock,
) -> anyhow::Result<Store> {
    let settings = configuration.database.settings();
    if settings.is_sent_in_clear().is_ok_and(|in_clear| in_clear) {
        tracing::warn!("connections to the metadata database on another machine are not encrypted (database.tls)");
    }
    Store::open(&settings, rules(configuration, keys)?, clock.clone())
        .await
        .map_err(|error| error.user_error())
        .with_context(|| cannot_open(configuration))
}

fn cannot_open(configuration: &Configuration) -> String {
    let shown = crate::configuration::without_password(&configuration.database.url);
    format!("cannot use the metadata database {shown}")
}

fn rules(configuration: &Configuration, keys: &Current<MetadataAgentKeys>) -> anyhow::Result<Rules> {
    Ok(Rules {
        defaults: defaults(configuration)?,
        secret_keys: configuration.metadata_agent.secret_keys.clone(),
        fingerprint_key: {
            let keys = keys.clone();
            FingerprintKey::current(move || keys.get().fingerprint())
        },
        sealing: Sealing::new(keys.clone()),
        max_engines: configuration.metadata_agent.max_engines,
        names_are_proven: !configuration.access.uses(Authentication::None),
    })
}

/// Binds the port of a metadata agent.
pub async fn metadata_agent_port(configuration: &Configuration) -> anyhow::Result<Listener> {
    Listener::bind(configuration.metadata_agent.listen, hs2::Limits::default())
        .await
        .context("the metadata agent did not start")
}

/// Starts a metadata agent.
pub fn metadata_agent(
    listener: Listener,
    configuration: &Configuration,
    keys: &Current<MetadataAgentKeys>,
    store: Store,
    clock: &SharedClock,
) -> anyhow::Result<MetadataAgent> {
    let section = &configuration.metadata_agent;
    let settings = engine_agent::metadata::Settings {
        listen: section.listen,
        advertise: (!section.advertise.is_empty()).then(|| section.advertise.clone()),
        zookeeper: zookeeper(configuration, engine_agent::metadata::identity(keys))?,
        keys: keys.clone(),
        tls: cluster_tls(configuration, &*keys.get())?,
        cluster: configuration.cluster.name.clone(),
        roles: configuration.access.roles(),
        rules: rules(configuration, keys)?,
        plan_limits: plan_limits(configuration),
        alter_wait: section.alter_wait.0,
        alter_grace: configuration.master.alter_grace.0,
        drain_grace: section.drain_grace.0,
        drain_grace_max: section.drain_grace_max.0,
        start_deadline: configuration.engines.start_deadline.0,
        tick_interval: configuration.master.tick_interval.0,
        audit_keep: section.audit_keep.0,
        reservation_keep: configuration.reservations.keep.0,
        holders: engine_agent::metadata::HolderSettings {
            ttl: configuration.reservations.external_ttl.0,
            lease: configuration.reservations.lease.0,
            providers: configuration.access.resource_providers.clone(),
        },
        limits: hs2::Limits::default(),
    };
    MetadataAgent::serve(listener, settings, store, clock.clone()).map_err(Into::into)
}

/// Starts a proxy.
pub async fn proxy(
    configuration: &Configuration,
    keys: &Current<ProxyKeys>,
    clock: &SharedClock,
) -> anyhow::Result<Proxy> {
    let section = &configuration.proxy;
    let unauthenticated = section.max_unauthenticated.min(open_files::unauthenticated());
    if unauthenticated < section.max_unauthenticated {
        tracing::warn!(
            connections = unauthenticated,
            configured = section.max_unauthenticated,
            "limit of open files is too low for proxy.max_unauthenticated; accepting fewer logins at a time; raise ulimit -n"
        );
    }
    let connections = section.max_connections.min(open_files::connections(unauthenticated));
    if connections < section.max_connections {
        tracing::warn!(
            connections,
            configured = section.max_connections,
            "limit of open files is too low for proxy.max_connections; accepting fewer connections; raise ulimit -n"
        );
    }
    let wire = hs2::Limits {
        connections,
        connections_per_user: section.max_connections_per_user,
        connections_per_peer: section.max_connections_per_address,
        unauthenticated_connections: unauthenticated,
        unauthenticated_per_address: section.max_unauthenticated_per_address,
        waiting_connections: unauthenticated,
        connect_rate: section.connect_rate,
        request_memory: RequestMemory::new(section.request_memory, section.request_memory_per_user),
        ..hs2::Limits::default()
    };
    let mut hosts = section.hosts.clone();
    if !section.advertise.is_empty() {
        let advertised = Advertised::new("proxy.advertise", &section.advertise, section.listen);
        hosts.push(advertised?.host);
    }
    let settings = proxy::Settings {
        listen: section.listen,
        discovery: section.registers().then(|| section.advertise.clone()),
        hosts,
        tls: listener_tls::start(configuration, clock)?,
        principal: principal(configuration),
        zookeeper: zookeeper(configuration, proxy::identity(keys))?,
        keys: keys.clone(),
        cluster_tls: cluster_tls(configuration, &*keys.get())?,
        serves_clients: section.serves_clients,
        authentication: client_authentication::chain(configuration, clock, &wire.hits).await?,
        roles: configuration.access.roles(),
        impersonation: configuration.access.impersonation_rules()?,
        snapshot_poll: section.snapshot_poll.0,
        bind_deadline: section.bind_deadline.0,
        idle: idle_limits(section),
        session_age: limit(section.session_age),
        demand_lease: section.demand_lease.0,
        defaults: defaults(configuration)?,
        load_cache: section.load_cache,
        product: product(section),
        limits: proxy::Limits {
            wire,
            sessions_per_user: section.max_sessions_per_user,
            sessions_per_tenant: section.max_sessions_per_tenant,
            statements_per_user: section.max_statements_per_user,
            statements_per_tenant: section.max_statements_per_tenant,
            session_settings_bytes: section.max_session_setting_bytes,
            session_statement_bytes: section.max_session_statement_bytes,
            held_bytes: section.max_held_bytes,
            ..proxy::Limits::default()
        },
    };
    if section.serves_clients && configuration.access.insecure && !section.listens_on_loopback() {
        client_authentication::warn_off_loopback(configuration, section.listen);
    }
    Proxy::start(settings, clock.clone()).await.map_err(|error| match error {
        // A hint is the end of a message, after the cause.
        proxy::StartError::Listen { .. } => anyhow::anyhow!("{}\n{LISTEN_HINT}", chain(&error)),
        proxy::StartError::Advertise(_) => error.into(),
    })
}

/// The URL with which JDBC clients connect to the proxy.
pub fn client_url(configuration: &Configuration, address: SocketAddr) -> String {
    let tls = if configuration.logins_require_tls() { ";ssl=true" } else { "" };
    let ticket = principal(configuration).map_or_else(String::new, |principal| format!(";principal={principal}"));
    format!("jdbc:hive2://{address}/{tls}{ticket}")
}

/// The principal of the proxies, if clients log in with tickets alone and the configuration names the realm.
fn principal(configuration: &Configuration) -> Option<String> {
    let section = &configuration.kerberos;
    let is_alone = configuration.access.authentication == [Authentication::Kerberos];
    let (service, realm) = (section.services.first()?, section.realms.first()?);
    is_alone.then(|| format!("{service}/_HOST@{realm}"))
}

/// A limit of sessions; zero is none.
fn limit(span: Span) -> Option<Duration> {
    (!span.0.is_zero()).then_some(span.0)
}

/// How long sessions may be idle.
fn idle_limits(section: &ProxySection) -> proxy::IdleLimits {
    proxy::IdleLimits {
        unbind_after: limit(section.unbind_after),
        session: limit(section.session_idle),
        http_session: limit(section.http_session_idle),
    }
}

/// The product name and version that clients receive.
fn product(section: &ProxySection) -> proxy::Product {
    let own = proxy::Product::default();
    let version = if section.product_version.is_empty() { own.version } else { section.product_version.clone() };
    proxy::Product { name: section.product_name.clone(), version }
}

/// Starts a proxy's candidate for master.
pub fn master(
    configuration: &Configuration,
    keys: &Current<MasterKeys>,
    orchestrator: Arc<dyn Orchestrator>,
    holder: String,
    clock: &SharedClock,
) -> anyhow::Result<Master> {
    let section = &configuration.master;
    let otherwise = master::Settings::default();
    let settings = master::Settings {
        cluster: configuration.cluster.name.clone(),
        defaults: defaults(configuration)?,
        limits: plan_limits(configuration),
        tick: section.tick_interval.0,
        alter_grace: section.alter_grace.0,
        status_poll: section.status_poll.0,
        audit: configuration.reservations.audit.0,
        candidate: section.candidate,
        // An effect takes at least one call to the orchestrator.
        effect_deadline: otherwise.effect_deadline.max(configuration.kubernetes.call_deadline.0),
        ..otherwise
    };
    let parts = master::Parts {
        coordination: zookeeper(configuration, master::identity(keys))?,
        keys: keys.clone(),
        cluster_tls: cluster_tls(configuration, &*keys.get())?,
        orchestrator,
        launcher: Arc::new(orchestrators::launcher(configuration, keys)?),
        clock: clock.clone(),
        holder,
    };
    Ok(Master::start(settings, parts))
}

/// TLS between roles, as a role with these keys uses it. An error if it is required and there is no key for it.
pub fn cluster_tls<S: RoleSecrets>(configuration: &Configuration, keys: &RoleKeys<S>) -> anyhow::Result<ClusterTls> {
    let tls = configuration.cluster_tls();
    if tls == ClusterTls::Required && !keys.has_tls() {
        bail!(
            "cluster.tls is \"required\", and the {} uses keys of generation 0, which has none for TLS\nHint: Set cluster.tls = \"optional\" until all roles use generation 1 (docs/security.md).",
            S::ROLE.name().replace('-', " ")
        );
    }
    if tls == ClusterTls::Optional {
        tracing::warn!(role = %S::ROLE, "cluster.tls is \"optional\": connections between roles may be plain text");
    }
    Ok(tls)
}

pub fn clock() -> SharedClock {
    SystemClock::shared()
}

/// The name of this process in the master's row, for users.
pub fn holder(role: &str) -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{role}@{host}:{}", std::process::id())
}
