//! Demand: sessions that wait for an engine, counted under keys and recorded with a lease.
//!
//! A proxy counts its waiting sessions by what they have in common. It records each key with its number of sessions until a
//! moment by the database's clock, and renews the record while they wait. The planner assigns the recorded demand to scaling
//! groups and computes from it how many engines each of them needs.
//!
//! Invariants:
//!
//! - Sessions with equal keys are interchangeable: any engine that serves one of them serves the others.
//! - A record whose lease has ended counts for nothing: its proxy has died or is cut off, and its sessions wait elsewhere or
//!   not at all.
//! - The digest of a key depends on every field, and on which fields are specified.
//!
//! Stale demand starts an engine that is not needed or delays one that is; it never ends one that is in use.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::engine_name::hex;
use crate::name::{PoolName, TenantName, UnitName};
use crate::owner::{Owner, SharedBy};
use crate::slot::{Link, Slot};

/// The most keys that one proxy records, the oldest first. The sessions of the others wait without demand.
pub const MAX_DEMAND_KEYS: usize = 1_000;

/// What is scaled together: the engines of one (tenant, pool, unit) and owner.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ScalingGroup {
    pub link: Link,
    /// `None` if the tenant shares the engines.
    pub owner: Option<Owner>,
}

impl ScalingGroup {
    /// What the slot is scaled together with.
    pub fn of(slot: &Slot) -> Self {
        Self { link: slot.key.link(), owner: slot.owner.clone() }
    }
}

/// What waiting sessions have in common. An engine serves them if it matches every specified field.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DemandKey {
    pub tenant: TenantName,
    /// Specified by the session or by its queue.
    pub pool: Option<PoolName>,
    /// Specified by the session or as the tenant's default.
    pub unit: Option<UnitName>,
    /// As the session specified it, optionally with a version: `spark` or `spark-3.5`.
    pub engine_type: Option<String>,
    /// The client application, which the engines of an owner are charged to.
    pub creator: String,
    /// Only if a matching unit is shared by user or by session: the engines of both are charged to the user.
    pub user: Option<String>,
    /// Only if a matching unit is shared by group: [`crate::sharing::group_of`].
    pub group: Option<String>,
    /// Only if a matching unit is shared by session.
    pub session: Option<String>,
}

impl DemandKey {
    /// The key of a client application's sessions that specify nothing more than their tenant.
    pub fn of_tenant(tenant: TenantName, creator: &str) -> Self {
        Self {
            tenant,
            pool: None,
            unit: None,
            engine_type: None,
            creator: creator.to_owned(),
            user: None,
            group: None,
            session: None,
        }
    }

    /// The owner of the engines that serve the key where they are shared like this: `Some(None)` if the tenant shares them.
    /// `None` if the key does not have the owner, because the unit was not shared like this when the proxy read it.
    pub fn owner(&self, shared_by: SharedBy) -> Option<Option<Owner>> {
        match shared_by {
            SharedBy::Tenant => Some(None),
            SharedBy::Group => self.group.clone().map(|group| Some(Owner::Group(group))),
            SharedBy::User => self.user.clone().map(|user| Some(Owner::User(user))),
            // The session's engine is charged to its user.
            SharedBy::Session => {
                self.session.clone().filter(|_| self.user.is_some()).map(|id| Some(Owner::Session(id)))
            }
        }
    }

    /// How many of its optional fields are specified. Demand that specifies more has fewer engines to choose from.
    pub fn specified(&self) -> usize {
        let Self { tenant: _, pool, unit, engine_type, creator: _, user, group, session } = self;
        let texts = [engine_type, user, group, session].into_iter().filter(|field| field.is_some()).count();
        texts + usize::from(pool.is_some()) + usize::from(unit.is_some())
    }

    /// 64 hex digits that identify the key where its columns are too long for an index.
    pub fn digest(&self) -> String {
        let Self { tenant, pool, unit, engine_type, creator, user, group, session } = self;
        let mut digest = Sha256::new();
        for field in [
            Some(tenant.as_str()),
            pool.as_ref().map(PoolName::as_str),
            unit.as_ref().map(UnitName::as_str),
            engine_type.as_deref(),
            Some(creator.as_str()),
            user.as_deref(),
            group.as_deref(),
            session.as_deref(),
        ] {
            // The length separates the fields, whatever characters they have.
            match field {
                Some(text) => {
                    digest.update([1]);
                    digest.update((text.len() as u64).to_be_bytes());
                    digest.update(text);
                }
                None => digest.update([0]),
            }
        }
        hex(&digest.finalize())
    }
}

/// The sessions of one proxy that wait under one key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Demand {
    pub key: DemandKey,
    /// How many sessions wait.
    pub waiting: u64,
    /// Since when the first of them has been waiting, by the database's clock, in milliseconds since 1970.
    pub since_ms: i64,
    /// When the lease ends, by the same clock.
    pub until_ms: i64,
}

impl Demand {
    /// Whether sessions wait and the lease has not ended.
    pub const fn is_current(&self, now_ms: i64) -> bool {
        self.waiting > 0 && now_ms < self.until_ms
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;

    use super::*;

    fn key() -> DemandKey {
        DemandKey::of_tenant(TenantName::new("t_1").unwrap(), "default")
    }

    /// Keys that differ in one field each, or in the place of the same text.
    fn keys() -> Vec<DemandKey> {
        let text = || Some("spark".to_owned());
        vec![
            key(),
            DemandKey { tenant: TenantName::new("t_2").unwrap(), ..key() },
            DemandKey { pool: Some(PoolName::new("spark").unwrap()), ..key() },
            DemandKey { unit: Some(UnitName::new("spark").unwrap()), ..key() },
            DemandKey { engine_type: text(), ..key() },
            DemandKey { engine_type: Some(String::new()), ..key() },
            DemandKey { creator: "spark".to_owned(), ..key() },
            DemandKey { creator: "default\u{1}spark".to_owned(), ..key() },
            DemandKey { user: text(), ..key() },
            DemandKey { group: text(), ..key() },
            DemandKey { session: text(), ..key() },
            DemandKey { user: text(), group: text(), ..key() },
            DemandKey { user: Some("spark\u{1}spark".to_owned()), ..key() },
        ]
    }

    #[test]
    fn a_digest_differs_with_every_field() {
        let digests: BTreeSet<String> = keys().iter().map(DemandKey::digest).collect();
        assert_eq!(digests.len(), keys().len());
        assert!(
            digests.iter().all(|digest| digest.len() == 64 && digest.bytes().all(|digit| digit.is_ascii_hexdigit()))
        );
        // It is stored: another one would leave rows behind that are never replaced.
        assert_eq!(key().digest(), "c2a7cd418c3433293784e247fa31040d51cb5d160f47763dcda1b5ab58fe0b2d");
    }

    #[test]
    fn only_optional_fields_count_as_specified() {
        let specified: Vec<usize> = keys().iter().map(DemandKey::specified).collect();
        assert_eq!(specified, [0, 0, 1, 1, 1, 1, 0, 0, 1, 1, 1, 2, 1]);
    }

    #[test]
    fn a_key_without_the_owner_has_no_engines() {
        let key = DemandKey { user: Some("ann".to_owned()), ..key() };
        assert_eq!(key.owner(SharedBy::Tenant), Some(None));
        assert_eq!(key.owner(SharedBy::User), Some(Some(Owner::User("ann".to_owned()))));
        assert_eq!([SharedBy::Group, SharedBy::Session].map(|shared_by| key.owner(shared_by)), [None, None]);
        let of_session = DemandKey { session: Some("s-1".to_owned()), ..key };
        assert_eq!(of_session.owner(SharedBy::Session), Some(Some(Owner::Session("s-1".to_owned()))));
        assert_eq!(DemandKey { user: None, ..of_session }.owner(SharedBy::Session), None, "it names no user to charge");
    }

    #[test]
    fn demand_is_current_until_its_lease_ends() {
        let demand = Demand { key: key(), waiting: 1, since_ms: 0, until_ms: 15_000 };
        assert!(demand.is_current(14_999) && !demand.is_current(15_000));
        assert!(!Demand { waiting: 0, ..demand }.is_current(0));
    }

    #[test]
    fn a_group_is_written_with_its_owner() {
        let link = Link {
            tenant: TenantName::new("t_1").unwrap(),
            pool: PoolName::new("rp_1").unwrap(),
            unit: UnitName::new("uc_1").unwrap(),
        };
        let group = ScalingGroup { link, owner: Some(Owner::User("ann".to_owned())) };
        let written = serde_json::to_string(&group).unwrap();
        assert_eq!(
            written,
            r#"{"link":{"tenant":"t_1","pool":"rp_1","unit":"uc_1"},"owner":{"kind":"user","name":"ann"}}"#
        );
        assert_eq!(serde_json::from_str::<ScalingGroup>(&written).unwrap(), group);
    }
}
