//! The parameters of the model of the ledger: jobs, isolation, limits of faults, removed rules.

use std::fmt;

use super::data::{A, B, Data, POOL, Request};

/// What a SELECT reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Isolation {
    /// The newest committed rows, as on `PostgreSQL`.
    ReadCommitted,
    /// The rows of the transaction's first SELECT, and the newest version of rows that the transaction has changed, as
    /// on `MariaDB`.
    RepeatableRead,
}

/// A transaction that is issued once, at any time, and repeated until it has an outcome. `epoch` is that of the master
/// that issues it; `None` for a holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Job {
    Reserve {
        request: Request,
        epoch: Option<u8>,
    },
    /// Ends the reservation of the request and returns its charge.
    End {
        request: Request,
        epoch: Option<u8>,
    },
    /// Charges a running engine, regardless of limits.
    Adopt {
        request: Request,
        epoch: u8,
    },
    /// Ends a reservation and grants its successor's.
    Transfer {
        from: Request,
        to: Request,
        epoch: u8,
    },
    /// ALTER of the guarantee of tenant A.
    AlterGuarantee(u8),
    /// ALTER of the limit of the user.
    AlterUser(u8),
    /// Recomputes a scope.
    Audit {
        scope: usize,
        epoch: u8,
    },
}

impl Job {
    pub fn epoch(self) -> Option<u8> {
        match self {
            Self::Reserve { epoch, .. } | Self::End { epoch, .. } => epoch,
            Self::Adopt { epoch, .. } | Self::Transfer { epoch, .. } | Self::Audit { epoch, .. } => Some(epoch),
            Self::AlterGuarantee(_) | Self::AlterUser(_) => None,
        }
    }

    /// The request that receives a reservation.
    pub fn request(self) -> Option<Request> {
        match self {
            Self::Reserve { request, .. } | Self::Adopt { request, .. } | Self::Transfer { to: request, .. } => {
                Some(request)
            }
            _ => None,
        }
    }
}

/// The transactions that run concurrently, and what is charged before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Workload {
    /// Two tenants request the last unit of a pool.
    LastOfPool,
    /// The same while a third request is released.
    LastOfPoolWithRelease,
    /// Two agents issue the same request.
    SameKey,
    /// A master ends the old engine of a lineage while the next one reserves for the new engine.
    Lineage,
    /// Two masters, of which the first is deposed, end and adopt the same engine.
    EndAndAdopt,
    /// The guarantee of a tenant is altered while both tenants request.
    Guarantee,
    /// The guarantee of a tenant is altered while its engine is released.
    GuaranteeWithRelease,
    /// The limit of a user is altered while the user requests for the first time.
    FirstOfUser,
    /// Two requests of a new user.
    TwoOfUser,
    /// Requests of both tenants while the tenant and the pool are audited.
    Audit,
    /// A tenant requests the last unit of its exclusive part twice while another would borrow it.
    Exclusive,
    /// A holder releases, and the expiry ends the same reservation.
    TwoEnds,
    /// An engine is replaced in place in a full pool while another request waits for its capacity.
    Transfer,
    /// Larger: requests of both tenants, a release, and ALTER of the guarantee.
    Mixed,
    /// Larger: requests of a user in both tenants, a release, and ALTER of the user's limit.
    MixedOfUser,
    /// The largest: as `Mixed`, with a user, an audit of the pool, and an engine that the next master adopts.
    Everything,
}

impl Workload {
    /// The initial data and the jobs.
    pub(super) fn setup(self) -> (Data, Vec<Job>) {
        let holder = |request| Job::Reserve { request, epoch: None };
        let release = |request| Job::End { request, epoch: None };
        let (a, b) = (Request::of(0, A), Request::of(1, B));
        let old = Request::of(3, A);
        match self {
            Self::LastOfPool => (Data::new(1, 0), vec![holder(a), holder(b)]),
            Self::LastOfPoolWithRelease => (Data::new(2, 0).with(old), vec![holder(a), holder(b), release(old)]),
            Self::SameKey => (Data::new(4, 0), vec![holder(a), holder(a)]),
            Self::Lineage => {
                let new = Request { lineage: old.lineage, ..Request::of(4, A) };
                let end = Job::End { request: old, epoch: Some(1) };
                (Data::new(4, 0).with(old), vec![end, Job::Reserve { request: new, epoch: Some(2) }])
            }
            Self::EndAndAdopt => {
                let end = Job::End { request: old, epoch: Some(1) };
                (Data::new(4, 0).with(old), vec![end, Job::Adopt { request: old, epoch: 2 }])
            }
            Self::Guarantee => (Data::new(2, 0), vec![Job::AlterGuarantee(1), holder(a), holder(b)]),
            Self::GuaranteeWithRelease => {
                (Data::new(3, 1).with(old), vec![Job::AlterGuarantee(0), release(old), holder(b)])
            }
            Self::FirstOfUser => {
                let of_user = Request { user: true, ..a };
                (Data::new(4, 0), vec![Job::AlterUser(1), holder(of_user)])
            }
            Self::TwoOfUser => {
                let [first, second] = [a, b].map(|request| Request { user: true, ..request });
                (Data::new(4, 0), vec![holder(first), holder(second)])
            }
            Self::Audit => {
                let audits = [A, POOL].map(|scope| Job::Audit { scope, epoch: 1 });
                (Data::new(4, 1).with(old), [vec![holder(a)], audits.to_vec()].concat())
            }
            Self::Exclusive => {
                let second = Request::of(2, A);
                (Data::new(3, 1), vec![holder(a), holder(second), holder(b)])
            }
            Self::TwoEnds => {
                let kept = Request::of(2, A);
                let expiry = Job::End { request: old, epoch: Some(1) };
                (Data::new(4, 0).with(old).with(kept), vec![release(old), expiry])
            }
            Self::Transfer => {
                let new = Request { lineage: old.lineage, ..Request::of(4, A) };
                (Data::new(1, 0).with(old), vec![Job::Transfer { from: old, to: new, epoch: 1 }, holder(b)])
            }
            Self::Mixed => {
                (Data::new(2, 1).with(old), vec![Job::AlterGuarantee(0), holder(a), holder(b), release(old)])
            }
            Self::MixedOfUser => {
                let [a, b, old] = [a, b, old].map(|request| Request { user: true, ..request });
                (Data::new(3, 0).with_user().with(old), vec![Job::AlterUser(1), holder(a), holder(b), release(old)])
            }
            Self::Everything => {
                let [a, old] = [a, old].map(|request| Request { user: true, ..request });
                let adopt = Job::Adopt { request: Request::of(4, B), epoch: 2 };
                let jobs = vec![Job::AlterGuarantee(0), holder(a), holder(b), release(old), adopt];
                let audit = Job::Audit { scope: POOL, epoch: 1 };
                (Data::new(2, 1).with_user().with(old), [jobs, vec![audit]].concat())
            }
        }
    }
}

/// How many faults of each kind may happen in one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Limits {
    /// Connections that break before COMMIT is sent.
    pub broken: u8,
    /// COMMITs whose reply is lost.
    pub lost_replies: u8,
    /// Masters that are deposed.
    pub depositions: u8,
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "broken connections {}, lost replies {}, masters deposed {}",
            self.broken, self.lost_replies, self.depositions
        )
    }
}

/// The rules of the protocol that are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct Without {
    /// A request is judged by what was read before the locks; the amounts are added to the rows as they are then.
    pub judged_under_lock: bool,
    /// What is written is computed from what was read before the locks.
    pub read_under_lock: bool,
    /// Scopes and reservation are written in two transactions.
    pub one_transaction: bool,
    /// ALTER locks the pool before the tenant.
    pub lock_order: bool,
    /// A repeated request is not recognized.
    pub request_key: bool,
    /// The epoch is checked in a statement of its own, before the transaction.
    pub epoch_in_transaction: bool,
    /// The lock of a scope changes no column.
    pub version: bool,
    /// A SELECT precedes the locks.
    pub locks_before_select: bool,
    /// What a charge adds to the shared part is computed from the tenant's row as it was before its lock.
    pub shared_from_lock: bool,
    /// The row of a new user is inserted without the catalog lock.
    pub catalog_lock: bool,
    /// An end returns the size that the unit has now.
    pub row_amounts: bool,
    /// An end returns the charge whatever the state of the reservation.
    pub state_compared: bool,
    /// A scope that was inserted after the locks is used.
    pub only_locked_rows: bool,
    /// The end of an engine and the reservation of its successor are two transactions.
    pub transfer: bool,
}
