//! `enginehouse config check`: validates a configuration and prints it with all defaults, and the defaults that changed.

use std::process::ExitCode;

use anyhow::Context as _;
use authentication::UsersFile;

use crate::cli::ConfigurationArgument;
use crate::configuration::{Authentication, Configuration, changed_defaults};
use crate::listener_tls::CertificateFiles;
use crate::output::print_line;
use crate::{key_files, keytab, roles};

pub async fn check(arguments: &ConfigurationArgument) -> anyhow::Result<ExitCode> {
    let (configuration, keys) = Configuration::load_with_keys(&arguments.config)?;
    // Every role would refuse to start without it.
    key_files::check(&configuration.cluster).with_context(|| format!("in {}", arguments.config.display()))?;
    // Every proxy with clients would.
    if configuration.proxy.serves_clients {
        if configuration.access.uses(Authentication::File) {
            UsersFile::open(&configuration.access.users_file).context("access.users_file")?;
        }
        if configuration.access.uses(Authentication::Ldap) {
            configuration.ldap.settings(configuration.access.login_cache, configuration.access.stale)?;
        }
        if configuration.access.uses(Authentication::Jwt) {
            configuration.jwt.check_file().await?;
        }
        if configuration.access.uses(Authentication::Kerberos) {
            keytab::check()?;
        }
        if configuration.tls.is_on() {
            CertificateFiles::new(&configuration.tls).read(roles::clock().wall_ms())?;
        }
    }
    configuration.zookeeper.trust()?;
    // Only a metadata agent reads these files, so a machine without its keys need not have them.
    if key_files::path(&configuration.cluster.keys, keys::Role::MetadataAgent).exists() {
        configuration.database.settings().check_files().map_err(|error| error.user_error())?;
    }
    let of_realms = configuration.access.uses(Authentication::Kerberos).then(|| configuration.kerberos.warning());
    let warnings = [configuration.access.warning_about_groups(), of_realms.flatten()];
    print_line(&format!("# {} is valid; with all defaults:", arguments.config.display()));
    print_line(toml::to_string(&concealed(configuration))?.trim_end());
    for warning in warnings.into_iter().flatten() {
        print_line(&format!("\n# warning: {warning}"));
    }
    let changed = changed_defaults::notice(&keys);
    if !changed.is_empty() {
        print_line(&format!("\n{}", changed.join("\n")));
    }
    Ok(ExitCode::SUCCESS)
}

/// A URL may hold a password, and so may a property of an engine.
pub fn concealed(mut configuration: Configuration) -> Configuration {
    configuration.database.url = crate::configuration::without_password(&configuration.database.url);
    configuration.spark = configuration.spark.masked(&configuration.metadata_agent.secret_keys);
    configuration.hiveserver2 = configuration.hiveserver2.masked(&configuration.metadata_agent.secret_keys);
    configuration.engines = configuration.engines.masked(&configuration.metadata_agent.secret_keys);
    configuration
}
