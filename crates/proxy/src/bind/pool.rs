//! Pool routing: the resource pool that a session uses, by name or by the queue that clients of YARN clusters name.
//!
//! A queue maps to one pool of the installation: the one with the longest `QUEUE_PREFIX` of it. It is resolved when it is
//! set, so that an unknown queue is an error of `OpenSession` or SET, and again at each binding, so that a session follows
//! a prefix that an admin moves to another pool. With an old catalog a session uses the pool that had the queue before; a
//! session is refused only by the newest catalog.

use ddl::SessionStatement;
use hs2::Principal;
use model::catalog::Catalog;
use model::error::{ErrorKind, UserError};
use model::name::{PoolName, TenantName};
use model::rights::{StatementKind, Subject};
use model::text::cut;

use crate::gateway::Gateway;
use crate::session::settings::{self, SessionSettings};
use crate::session::state::Session;
use crate::settings::AGENT_DEADLINE;

/// The most of a queue's name that an error repeats, in bytes.
const MAX_SHOWN_BYTES: usize = 128;
/// The most queues that an error lists.
const MAX_LISTED: usize = 10;

/// The pool that a session asks for, with its user's rights.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PoolRequest<'a> {
    subject: &'a Subject,
    tenant: Option<&'a TenantName>,
    pool: Option<&'a PoolName>,
    queue: Option<&'a str>,
}

impl<'a> PoolRequest<'a> {
    pub(crate) fn new(subject: &'a Subject, settings: &'a SessionSettings) -> Self {
        Self {
            subject,
            tenant: settings.tenant.as_ref(),
            pool: settings.pool.as_ref(),
            queue: settings.queue.as_deref(),
        }
    }

    /// The pool of the queue, or the named pool; `None` for any.
    pub(crate) fn pool_in(&self, catalog: &Catalog) -> Result<Option<PoolName>, UserError> {
        let Some(queue) = self.queue else { return Ok(self.pool.cloned()) };
        let found = catalog.pool_of_queue(queue).filter(|pool| self.may_use(catalog, pool));
        let Some(found) = found else { return Err(self.unknown(catalog, queue)) };
        match self.pool.filter(|named| *named != found) {
            None => Ok(Some(found.clone())),
            Some(named) => Err(UserError::new(
                ErrorKind::InvalidValue,
                format!("queue \"{}\" does not belong to resource pool \"{named}\"", cut(queue, MAX_SHOWN_BYTES)),
            )
            .detail(format!("It belongs to resource pool \"{found}\", and the session names both."))
            .hint("Omit enginehouse.pool or the queue.")),
        }
    }

    /// Whether the pool is used by a tenant that the session may use.
    fn may_use(&self, catalog: &Catalog, pool: &PoolName) -> bool {
        catalog.tenants.iter().any(|(name, tenant)| {
            self.tenant.is_none_or(|named| named == name)
                && self.subject.may_in(StatementKind::Query, Some(&tenant.spec))
                && tenant.spec.pools.contains(pool)
        })
    }

    /// Lists the queues of this user; does not reveal others.
    fn unknown(&self, catalog: &Catalog, queue: &str) -> UserError {
        let queues: Vec<String> = catalog
            .pools
            .iter()
            .filter(|(pool, _)| self.may_use(catalog, pool))
            .filter_map(|(_, pool)| Some(format!("'{}'", pool.spec.queue_prefix.as_ref()?)))
            .collect();
        let detail = match queues.len() {
            0 => "No resource pool that you may use has a queue.".to_owned(),
            1 => format!("Your queue is {}.", queues[0]),
            2..=MAX_LISTED => format!("Your queues are {}.", queues.join(", ")),
            count => {
                format!("Your queues are {} and {} more.", queues[..MAX_LISTED].join(", "), count - MAX_LISTED)
            }
        };
        let message = format!("queue \"{}\" belongs to no resource pool", cut(queue, MAX_SHOWN_BYTES));
        UserError::new(ErrorKind::UndefinedObject, message)
            .detail(detail)
            .hint("An admin assigns a queue to a pool with ALTER RESOURCE POOL … QUEUE_PREFIX '…'.")
    }
}

/// Refuses a new session with an unknown queue.
pub(crate) async fn check(
    gateway: &Gateway,
    principal: &Principal,
    settings: &SessionSettings,
) -> Result<(), UserError> {
    if settings.queue.is_none() {
        return Ok(());
    }
    let subject = gateway.subject(principal).await?;
    check_request(gateway, PoolRequest::new(&subject, settings)).await
}

/// Refuses a SET of an unknown queue before it has an effect.
pub(crate) async fn check_set(
    gateway: &Gateway,
    session: &Session,
    statement: &SessionStatement<'_>,
) -> Result<(), UserError> {
    let SessionStatement::Set { key, value } = statement else { return Ok(()) };
    if settings::own_key(key).as_deref() != Some(settings::QUEUE) {
        return Ok(());
    }
    let subject = gateway.subject(&session.principal).await?;
    let current = PoolRequest::new(&subject, &session.settings);
    check_request(gateway, PoolRequest { queue: settings::unquoted(value), ..current }).await
}

async fn check_request(gateway: &Gateway, request: PoolRequest<'_>) -> Result<(), UserError> {
    if request.queue.is_none() {
        return Ok(());
    }
    // A proxy that has just started has no catalog yet.
    if !gateway.catalog.first(AGENT_DEADLINE).await {
        return Err(gateway.agents.none_reachable());
    }
    let pool = request.pool_in(&gateway.catalog.reading().snapshot.catalog);
    if pool.is_err() && gateway.catalog.refresh().await {
        return request.pool_in(&gateway.catalog.reading().snapshot.catalog).map(drop);
    }
    pool.map(drop)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use model::catalog::{PoolSpec, TenantSpec, Versioned};
    use model::number::Generation;
    use model::rights::RoleLists;

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
                pools: pools.iter().map(|pool| PoolName::new(*pool).unwrap()).collect(),
                users: vec![user.to_owned()],
                ..TenantSpec::default()
            };
            catalog.tenants.insert(TenantName::new(name).unwrap(), Versioned { spec, generation });
        }
        catalog
    }

    fn subject(user: &str) -> Subject {
        Subject::new(user, Vec::new(), &RoleLists::of_admins(&["root"]))
    }

    fn request<'a>(subject: &'a Subject, queue: &'a str) -> PoolRequest<'a> {
        PoolRequest { subject, tenant: None, pool: None, queue: Some(queue) }
    }

    #[test]
    fn a_queue_maps_to_the_pool_of_its_longest_prefix() {
        let catalog = catalog();
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
            let found = request(&subject(user), queue).pool_in(&catalog);
            assert_eq!(found.ok().flatten().as_ref().map(AsRef::as_ref), pool, "{user} {queue}");
        }
        let ann = subject("ann");
        let any = PoolRequest { queue: None, ..request(&ann, "") };
        assert_eq!(any.pool_in(&catalog), Ok(None));
    }

    #[test]
    fn an_unknown_queue_lists_only_the_users_queues() {
        let error = request(&subject("ann"), "pool10.x").pool_in(&catalog()).unwrap_err();
        assert_eq!(error.message, "queue \"pool10.x\" belongs to no resource pool");
        assert_eq!(error.detail.as_deref(), Some("Your queues are 'pool1', 'pool1.etl'."));
        assert_eq!(error.sqlstate(), "42704");
        let error = request(&subject("eve"), "pool1").pool_in(&catalog()).unwrap_err();
        assert_eq!(error.detail.as_deref(), Some("No resource pool that you may use has a queue."));
        let long = "q".repeat(100_000);
        assert!(request(&subject("ann"), &long).pool_in(&catalog()).unwrap_err().text().len() < 1_000);
    }

    #[test]
    fn a_queue_of_another_pool_contradicts_the_named_pool() {
        let ann = subject("ann");
        let (rp_1, rp_3) = (PoolName::new("rp_1").unwrap(), PoolName::new("rp_3").unwrap());
        assert_eq!(PoolRequest { pool: Some(&rp_1), ..request(&ann, "pool1") }.pool_in(&catalog()), Ok(Some(rp_1)));
        let error = PoolRequest { pool: Some(&rp_3), ..request(&ann, "pool1") }.pool_in(&catalog()).unwrap_err();
        assert_eq!(error.sqlstate(), "22023");
        assert!(error.text().contains("\"rp_1\"") && error.text().contains("\"rp_3\""), "{}", error.text());
    }
}
