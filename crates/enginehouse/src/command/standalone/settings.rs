//! The configuration of a standalone: a file, the environment, the command line, and keys that it sets itself.
//!
//! The embedded servers and the data directory determine some keys. A file or variable that sets one of these is refused,
//! because it would have no effect.

use std::net::SocketAddr;

use anyhow::{Context as _, bail};

use super::data_dir::DataDir;
use crate::cli::StandaloneArguments;
use crate::configuration::{Authentication, Configuration, Span, TlsMode, resolved};

/// The name of the installation.
const CLUSTER: &str = "standalone";
/// The default session timeout of the embedded ZooKeeper.
const SESSION_TIMEOUT: Span = Span::seconds(6);
/// The longest CN of a certificate.
const MAX_COMMON_NAME_BYTES: usize = 64;
/// A command that adds the user who is admin by default.
const PASSWD_COMMAND: &str = "enginehouse passwd --file users admin";
const OWN_KEYS: [(&str, &str); 17] = [
    ("cluster", "name"),
    ("cluster", "keys"),
    ("access", "insecure"),
    ("zookeeper", "connect"),
    ("zookeeper", "root"),
    ("zookeeper", "tls"),
    ("zookeeper", "ca_file"),
    ("database", "url"),
    ("database", "tls"),
    ("database", "ca_file"),
    ("database", "password_file"),
    ("proxy", "serves_clients"),
    ("master", "candidate"),
    ("metadata_agent", "listen"),
    ("orchestrator", "kind"),
    ("orchestrator", "state_dir"),
    ("engines", "data_dir"),
];

/// Reads the file, the environment and the command line.
pub fn read(arguments: &StandaloneArguments) -> anyhow::Result<Configuration> {
    let (mut configuration, keys) = Configuration::read(arguments.config.as_deref())?;
    let sets = |section: &str, key: &str| {
        keys.get(section).and_then(toml::Value::as_table).is_some_and(|section| section.contains_key(key))
    };
    if let Some((section, key)) = OWN_KEYS.iter().find(|(section, key)| sets(section, key)) {
        bail!(
            "{section}.{key} is not for a standalone, which sets it itself\nHint: Remove it, or run the roles as separate processes."
        );
    }
    if !sets("zookeeper", "session_timeout") {
        configuration.zookeeper.session_timeout = SESSION_TIMEOUT;
    }
    if !sets("cluster", "tls") {
        configuration.cluster.tls = TlsMode::Off;
    }
    if let Some(listen) = arguments.listen {
        configuration.proxy.listen = listen;
    }
    for folder in &arguments.allow {
        let cannot_use = || format!("--allow {}", folder.display());
        let folder = folder.canonicalize().with_context(cannot_use)?;
        if !folder.is_dir() {
            bail!("{} is not a folder", cannot_use());
        }
        configuration.engines.allowed_locations.push(folder);
    }
    Ok(configuration)
}

/// Refuses an address that others can reach, unless clients prove who they are inside TLS; and a tour that cannot connect.
pub fn check_exposure(configuration: &Configuration, arguments: &StandaloneArguments) -> anyhow::Result<()> {
    let trusts_names = configuration.access.uses(Authentication::None);
    let listen = configuration.proxy.listen;
    if !listen.ip().is_loopback()
        && (trusts_names || (configuration.access.receives_secrets() && !configuration.logins_require_tls()))
    {
        let why = if trusts_names { "trusts every user name" } else { "receives passwords unencrypted" };
        bail!(
            "standalone {why} and therefore listens on loopback addresses only, not on {listen}\n\
             Hint: Create a user and a certificate with the commands below, and set access.authentication = \"file\", tls.mode = \"required\", tls.certificate_file = \"server.crt\" and tls.key_file = \"server.key\" (docs/security.md).\n  \
             {PASSWD_COMMAND}\n  {}",
            certificate_command(&host())
        );
    }
    if arguments.tour && (!trusts_names || configuration.logins_require_tls()) {
        bail!(
            "the tour connects as admin without a password and without TLS\nHint: Leave out --tour, or access.authentication and tls.mode."
        );
    }
    Ok(())
}

/// A command that makes a certificate and its key for that host, as on the page on security.
fn certificate_command(host: &str) -> String {
    format!(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 365 -subj /CN={host} \
         -addext subjectAltName=DNS:{host},DNS:localhost,IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE \
         -out server.crt -keyout server.key"
    )
}

/// The name of this machine, if a certificate and a shell can have it.
fn host() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let fits = (1..=MAX_COMMON_NAME_BYTES).contains(&name.len())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.'));
    if fits { name } else { "localhost".to_owned() }
}

/// The complete configuration of the standalone in that folder, validated.
pub fn complete(mut asked: Configuration, data: &DataDir, zookeeper: SocketAddr) -> anyhow::Result<Configuration> {
    for location in &asked.engines.allowed_locations {
        let location = resolved(location);
        if data.root().starts_with(&location) || location.starts_with(data.root()) {
            bail!(
                "the allowed folder {} and the data directory {} contain one another\nHint: Allow a folder with nothing but data, or choose another data directory with --data-dir.",
                location.display(),
                data.root().display()
            );
        }
    }
    asked.engines.allowed_locations.push(data.samples());
    if asked.tls.is_on() {
        // For the doctor, whose working directory may be another one.
        for file in [&mut asked.tls.certificate_file, &mut asked.tls.key_file] {
            if !file.as_os_str().is_empty() {
                *file = std::path::absolute(&*file)?;
            }
        }
    }
    set_own_keys(&mut asked, data, zookeeper);
    asked.check()?;
    Ok(asked)
}

/// The default configuration of a standalone in that folder, if its own was not stored.
pub fn without_settings(data: &DataDir, listen: SocketAddr, zookeeper: SocketAddr) -> Configuration {
    let mut configuration = Configuration::default();
    configuration.zookeeper.session_timeout = SESSION_TIMEOUT;
    configuration.cluster.tls = TlsMode::Off;
    configuration.proxy.listen = listen;
    configuration.engines.allowed_locations = vec![data.samples()];
    set_own_keys(&mut configuration, data, zookeeper);
    configuration
}

fn set_own_keys(configuration: &mut Configuration, data: &DataDir, zookeeper: SocketAddr) {
    CLUSTER.clone_into(&mut configuration.cluster.name);
    configuration.cluster.keys = data.keys();
    configuration.zookeeper.connect = zookeeper.to_string();
    // Its path may contain characters with a meaning in a URL.
    configuration.database.url = metadata::StoreSettings::sqlite(&data.database()).url;
    configuration.metadata_agent.listen = SocketAddr::from(([127, 0, 0, 1], 0));
    configuration.orchestrator.state_dir = data.engines();
    configuration.engines.data_dir = data.engine_data();
}
