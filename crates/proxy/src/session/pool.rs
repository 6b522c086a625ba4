//! The queue that a session names, as sessions of YARN clusters do, and the resource pool that it means.
//!
//! A queue is one pool's in the whole installation: the pool with the longest `QUEUE_PREFIX` of it. It is looked up when it
//! is said, so that a name that means nothing is an error of `OpenSession` or SET, and again with each binding, so
//! that a session follows a prefix that an admin gives to another pool. By an old catalog a session gets engines of the
//! pool that had the queue; before somebody is refused the newest catalog is asked.

use std::sync::Arc;

use ddl::SessionStatement;
use model::catalog::Catalog;
use model::error::{ErrorKind, UserError};
use model::name::{PoolName, TenantName};
use model::observation::cut;

use super::Session;
use super::settings::{self, SessionSettings};
use crate::Gateway;
use crate::settings::AGENT_DEADLINE;

/// The most of a queue's name that an error repeats, in bytes.
const MAX_SHOWN_BYTES: usize = 128;
/// The most queues that an error lists.
const MAX_LISTED: usize = 10;

/// Who asks for what.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asks<'a> {
    user: &'a str,
    admins: &'a [String],
    tenant: Option<&'a TenantName>,
    pool: Option<&'a PoolName>,
    queue: Option<&'a str>,
}

impl<'a> Asks<'a> {
    pub(super) fn of(gateway: &'a Gateway, user: &'a str, keys: &'a SessionSettings) -> Self {
        Self {
            user,
            admins: &gateway.settings.admins,
            tenant: keys.tenant.as_ref(),
            pool: keys.pool.as_ref(),
            queue: keys.queue.as_deref(),
        }
    }

    /// The pool that the session's engines are to be of: that of its queue, or the one that it names; `None` for any.
    pub(super) fn pool_in(&self, catalog: &Catalog) -> Result<Option<PoolName>, UserError> {
        let Some(queue) = self.queue else { return Ok(self.pool.cloned()) };
        let found = catalog.pool_of_queue(queue).filter(|pool| self.may_use(catalog, pool));
        let Some(found) = found else { return Err(self.unknown(catalog, queue)) };
        match self.pool.filter(|named| *named != found) {
            None => Ok(Some(found.clone())),
            Some(named) => Err(UserError::new(
                ErrorKind::InvalidValue,
                format!("queue \"{}\" is not of resource pool \"{named}\"", cut(queue, MAX_SHOWN_BYTES)),
            )
            .detail(format!("it is of resource pool \"{found}\", and the session names both"))
            .hint("leave enginehouse.pool or the queue out")),
        }
    }

    /// Whether a tenant that the session may be of uses the pool.
    fn may_use(&self, catalog: &Catalog, pool: &PoolName) -> bool {
        let is_admin = self.admins.iter().any(|admin| admin == self.user);
        catalog.tenants.iter().any(|(name, it)| {
            self.tenant.is_none_or(|tenant| tenant == name)
                && (is_admin || it.spec.users.iter().any(|user| user == self.user))
                && it.spec.pools.contains(pool)
        })
    }

    /// Says which queues there are for this user, and not whether there are others.
    fn unknown(&self, catalog: &Catalog, queue: &str) -> UserError {
        let queues: Vec<String> = catalog
            .pools
            .iter()
            .filter(|(pool, _)| self.may_use(catalog, pool))
            .filter_map(|(_, it)| Some(format!("'{}'", it.spec.queue_prefix.as_ref()?)))
            .collect();
        let detail = match queues.len() {
            0 => "no resource pool that you may use has a queue".to_owned(),
            count @ 1..=MAX_LISTED => format!("{}: {}", your(count), queues.join(", ")),
            count => {
                format!("{}: {} and {} more", your(count), queues[..MAX_LISTED].join(", "), count - MAX_LISTED)
            }
        };
        let message = format!("queue \"{}\" belongs to no resource pool", cut(queue, MAX_SHOWN_BYTES));
        UserError::new(ErrorKind::UndefinedObject, message)
            .detail(detail)
            .hint("an admin gives a pool its queue with ALTER RESOURCE POOL … QUEUE_PREFIX '…'")
    }
}

const fn your(count: usize) -> &'static str {
    if count == 1 { "your queue is" } else { "your queues are" }
}

/// Refuses a new session whose queue means nothing.
pub(super) async fn check(gateway: &Arc<Gateway>, user: &str, keys: &SessionSettings) -> Result<(), UserError> {
    checked(gateway, Asks::of(gateway, user, keys)).await
}

/// Refuses a SET of a queue that means nothing, before it changes anything.
pub(super) async fn check_set(
    gateway: &Arc<Gateway>,
    session: &Session,
    said: &SessionStatement<'_>,
) -> Result<(), UserError> {
    let SessionStatement::Set { key, value } = said else { return Ok(()) };
    if settings::own_key(key).as_deref() != Some(settings::QUEUE) {
        return Ok(());
    }
    checked(gateway, Asks { queue: settings::given(value), ..Asks::of(gateway, &session.user, &session.settings) })
        .await
}

async fn checked(gateway: &Arc<Gateway>, asks: Asks<'_>) -> Result<(), UserError> {
    if asks.queue.is_none() {
        return Ok(());
    }
    // A proxy that has just started knows no pool yet.
    if !gateway.catalog.first(AGENT_DEADLINE).await {
        return Err(gateway.agents.none_reachable());
    }
    let known = asks.pool_in(&gateway.catalog.reading().snapshot.catalog);
    if known.is_err() && gateway.catalog.refresh().await {
        return asks.pool_in(&gateway.catalog.reading().snapshot.catalog).map(drop);
    }
    known.map(drop)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use model::catalog::{PoolSpec, TenantSpec, Versioned};
    use model::number::Generation;

    use super::*;

    fn catalog() -> Catalog {
        let mut catalog = Catalog::default();
        let generation = Generation(1);
        for (name, queue) in [("rp_1", "pool1"), ("rp_2", "pool10"), ("rp_3", "pool1.etl")] {
            let spec = PoolSpec { queue_prefix: Some(queue.to_owned()), ..PoolSpec::default() };
            catalog.pools.insert(PoolName::new(name).unwrap(), Versioned { spec, generation });
        }
        for (name, pools, user) in [("t_1", &["rp_1", "rp_3"][..], "ann"), ("t_2", &["rp_2"], "bob")] {
            let spec = TenantSpec {
                pools: pools.iter().map(|it| PoolName::new(*it).unwrap()).collect(),
                users: vec![user.to_owned()],
                ..TenantSpec::default()
            };
            catalog.tenants.insert(TenantName::new(name).unwrap(), Versioned { spec, generation });
        }
        catalog
    }

    fn asks<'a>(user: &'a str, queue: &'a str) -> Asks<'a> {
        Asks { user, admins: &[], tenant: None, pool: None, queue: Some(queue) }
    }

    #[test]
    fn a_queue_means_the_pool_of_its_longest_prefix_for_whoever_may_use_it() {
        let (catalog, admins) = (catalog(), ["root".to_owned()]);
        for (user, queue, pool) in [
            ("ann", "pool1.x", Some("rp_1")),
            ("ann", "pool1.etl.x", Some("rp_3")),
            ("ann", "pool10.x", None),
            ("bob", "pool10.x", Some("rp_2")),
            ("bob", "pool1.x", None),
            ("root", "pool10.x", Some("rp_2")),
            ("root", "nowhere", None),
            ("eve", "pool1", None),
        ] {
            let found = Asks { admins: &admins, ..asks(user, queue) }.pool_in(&catalog);
            assert_eq!(found.ok().flatten().as_ref().map(AsRef::as_ref), pool, "{user} {queue}");
        }
        let any = Asks { queue: None, ..asks("ann", "") };
        assert_eq!(any.pool_in(&catalog), Ok(None));
    }

    #[test]
    fn who_is_refused_learns_of_his_own_queues_only() {
        let error = asks("ann", "pool10.x").pool_in(&catalog()).unwrap_err();
        assert_eq!(error.message, "queue \"pool10.x\" belongs to no resource pool");
        assert_eq!(error.detail.as_deref(), Some("your queues are: 'pool1', 'pool1.etl'"));
        assert_eq!(error.sqlstate(), "42704");
        let error = asks("eve", "pool1").pool_in(&catalog()).unwrap_err();
        assert_eq!(error.detail.as_deref(), Some("no resource pool that you may use has a queue"));
        let long = "q".repeat(100_000);
        assert!(asks("ann", &long).pool_in(&catalog()).unwrap_err().text().len() < 1_000);
    }

    #[test]
    fn a_pool_and_a_queue_of_another_contradict_each_other() {
        let (rp_1, rp_3) = (PoolName::new("rp_1").unwrap(), PoolName::new("rp_3").unwrap());
        assert_eq!(Asks { pool: Some(&rp_1), ..asks("ann", "pool1") }.pool_in(&catalog()), Ok(Some(rp_1)));
        let error = Asks { pool: Some(&rp_3), ..asks("ann", "pool1") }.pool_in(&catalog()).unwrap_err();
        assert_eq!(error.sqlstate(), "22023");
        assert!(error.text().contains("\"rp_1\"") && error.text().contains("\"rp_3\""), "{}", error.text());
    }
}
