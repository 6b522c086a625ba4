//! The authentication of a proxy's clients, from the configuration.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use authentication::{Chain, FileMethod, HashQueue, JwtMethod, LdapMethod, LoginCache, Method, Throttle, UsersFile};
use hs2::LimitHits;
use model::clock::SharedClock;

use crate::configuration::{Authentication, Configuration};

/// The methods that authenticate clients; `None` if their names are trusted, or if no clients are served. The users file is
/// read here, and again by a task of the runtime. `hits` counts the logins that a limit refuses.
pub async fn chain(
    configuration: &Configuration,
    clock: &SharedClock,
    hits: &Arc<LimitHits>,
) -> anyhow::Result<Option<Arc<Chain>>> {
    if !configuration.proxy.serves_clients {
        return Ok(None);
    }
    let access = &configuration.access;
    let cache = Arc::new(LoginCache::new(access.login_cache.0, clock.clone()));
    let mut methods: Vec<Arc<dyn Method>> = Vec::new();
    for method in &access.authentication {
        match method {
            Authentication::None => return Ok(None),
            Authentication::File => {
                let file = Arc::new(UsersFile::open(&access.users_file).context("access.users_file")?);
                file.start_rereading(clock.clone());
                let queue = HashQueue::default().with_limit_hits(Arc::clone(hits));
                methods.push(Arc::new(FileMethod::new(file, queue, Arc::clone(&cache))?));
            }
            Authentication::Ldap => {
                let settings = configuration.ldap.settings(access.login_cache, access.stale)?;
                methods.push(Arc::new(LdapMethod::new(settings, Arc::clone(&cache), clock.clone())));
            }
            Authentication::Jwt => {
                configuration.jwt.check_file().await?;
                methods.push(Arc::new(JwtMethod::new(configuration.jwt.settings()?, clock.clone())));
            }
            Authentication::Kerberos => methods.push(kerberos(configuration)?),
        }
    }
    let throttle = Throttle::new(access.lockout.0, clock.clone());
    let chain = Arc::new(Chain::new(methods, throttle, clock.clone()).with_limit_hits(Arc::clone(hits)));
    chain.start_reporting();
    Ok(Some(chain))
}

/// The method `kerberos`. Reads the keytab.
#[cfg(feature = "kerberos")]
fn kerberos(configuration: &Configuration) -> anyhow::Result<Arc<dyn Method>> {
    crate::keytab::check()?;
    let (services, realms) = (configuration.kerberos.services.clone(), configuration.kerberos.realms.clone());
    let method = authentication::KerberosMethod::new(authentication::KerberosSettings { services, realms })
        .context("the keytab cannot be used")?;
    Ok(Arc::new(method))
}

/// The configuration was refused.
#[cfg(not(feature = "kerberos"))]
fn kerberos(_: &Configuration) -> anyhow::Result<Arc<dyn Method>> {
    anyhow::bail!("this program was built without the method \"kerberos\"")
}

/// Warns at each start of what `access.insecure` permits on that address.
pub fn warn_off_loopback(configuration: &Configuration, listen: SocketAddr) {
    if configuration.access.uses(Authentication::None) {
        tracing::warn!(%listen, "authentication \"none\" on a non-loopback address: every client there can claim to be an admin");
    } else if configuration.access.receives_secrets() && !configuration.logins_require_tls() {
        tracing::warn!(%listen, "passwords are sent unencrypted on a non-loopback address");
    }
}
