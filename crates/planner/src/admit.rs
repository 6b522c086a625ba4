//! Admission: which requests for reservations are granted now, in which order, and why each other one is queued or
//! rejected.
//!
//! Each tenant has a queue on each pool. The first requests of all queues take turns: those within the guarantee of
//! their tenant first, also where one that exceeds it is before them in their queue, then those of tenants without a
//! guarantee, then those of the tenant that borrows the smallest share. Among tenants without a guarantee, which have no
//! share, the one is first that will have the smallest part of what no guarantee covers, or the fewest engines where that is
//! unlimited; only then do priority and age decide. So tenants alternate engine by engine, whether or not they have quotas.
//! A request that does not fit is set aside and never blocks one of another tenant, except that borrowers wait for a request
//! within its guarantee.
//!
//! Invariants:
//!
//! - A grant raises nothing above its limit, and all pods of a granted engine find nodes.
//! - Every request is granted, queued or rejected, and the result does not depend on the order of the input.
//! - A request is rejected only if it can never fit with the current limits.
//!
//! A pure function of copies. What it grants from a stale ledger is refused by the database, and planned again by the
//! next tick.

mod headroom;
mod order;
mod outcome;
mod request;
mod waits;

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use model::ledger::{Moment, ScopeKey};

pub(crate) use headroom::{Entitlement, Obstacle};
pub use headroom::{Headroom, Shortages};
use order::{Head, Queues};
pub use outcome::{Cause, Impossible, Queued, Rejected};
pub use request::Request;
use waits::Waits;

/// For how long smaller requests of a tenant may pass a larger one, by default.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// The result of a round of admission. Each request is in exactly one of the lists.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Admission<'a> {
    /// In the order of the grants, which is that in which they must be reserved.
    pub granted: Vec<&'a Request>,
    /// In the order in which they were set aside.
    pub queued: Vec<Queued<'a>>,
    /// In the order of the input.
    pub rejected: Vec<Rejected<'a>>,
}

/// What a round of admission depends on, in addition to requests and headroom.
#[derive(Debug, Clone)]
pub struct AdmissionRules {
    pub at: Moment,
    /// For how long smaller requests of a tenant may pass one that is short of a user, creator or tenant scope.
    pub patience: Duration,
    /// The tenants on pools for which engines of others were reclaimed that still drain.
    pub awaiting: BTreeSet<ScopeKey>,
}

/// Grants requests in the copy, as many as fit.
pub fn admit<'a>(requests: &'a [Request], headroom: &mut Headroom, rules: &AdmissionRules) -> Admission<'a> {
    let mut admission = Admission::default();
    let mut possible = Vec::with_capacity(requests.len());
    // Many requests in a row need the same.
    let mut last: Option<(&Request, Option<Impossible>)> = None;
    for request in requests {
        let known = last.take().filter(|(last, _)| last.needs_same(request)).map(|(_, why)| why);
        let why = known.unwrap_or_else(|| impossible(request, headroom, rules.at.now_ms));
        match why.clone() {
            Some(why) => admission.rejected.push(Rejected { request, why }),
            None => possible.push(request),
        }
        last = Some((request, why));
    }
    let mut queues = Queues::new(&possible, headroom);
    let mut waits = Waits::new(rules.at.now_ms, rules.patience, &rules.awaiting);
    let mut lengths: HashMap<&str, usize> = HashMap::new();
    while let Some(head) = queues.pop() {
        match turn(&head, headroom, &mut waits, rules) {
            Ok(()) => admission.granted.push(head.request),
            Err(cause) => {
                let position = lengths.entry(head.request.reservation.scopes.pool_name()).or_default();
                *position += 1;
                admission.queued.push(Queued { request: head.request, cause, position: *position });
            }
        }
        queues.follow(&head, headroom);
    }
    admission
}

/// Why the request can never fit. A transfer keeps at least what it has, so it is never above a limit.
pub(crate) fn impossible(request: &Request, headroom: &Headroom, now_ms: i64) -> Option<Impossible> {
    let pool = request.reservation.scopes.pool_name();
    let oversized = || headroom.nodes.oversized(pool, request.pods.as_ref()?).map(Impossible::Oversized);
    let short = match request.replaces {
        Some(_) => None,
        None => headroom.ledger.impossible(&request.reservation, now_ms).map(Impossible::Short),
    };
    short.or_else(oversized)
}

/// Grants the request of a head, or returns why it is queued.
fn turn<'a>(
    head: &Head<'a>,
    headroom: &mut Headroom,
    waits: &mut Waits<'a, '_>,
    rules: &AdmissionRules,
) -> Result<(), Cause<'a>> {
    let (request, entitlement) = (head.request, &head.entitlement);
    if let Some((request, shortage)) = waits.behind(request, &entitlement.raise) {
        return Err(Cause::Behind { request, shortage });
    }
    if entitlement.borrows
        && let Some(awaited) = waits.borrowers_wait_for(request)
        && headroom.adds_to_pool(request)
    {
        return Err(Cause::Yields { request: awaited });
    }
    headroom.grant(request, rules.at).map(drop).map_err(|obstacle| match obstacle {
        Obstacle::Short(shortages) => {
            waits.set_aside(request, entitlement, &shortages);
            Cause::Short(shortages)
        }
        Obstacle::Refused(refusal) => Cause::Refused(refusal),
    })
}
