//! Properties of rounds of admission over random pools, and a reference that ranks every head again before each grant.
//!
//! A failure prints the pool and its requests, and proptest the seed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::ledger::{Holder, Ledger, Role, Scopes, Shortage};
use model::name::UnitName;
use model::number::Incarnation;
use model::quota::{Limit, Share};
use model::resource::{Amount, Component};
use planner::{Admission, Cause, Headroom, Request, admit};
use proptest::prelude::*;

use crate::sample::{
    AT, NOW_MS, POOL, Quota, for_user, hold, on_a_node, pool, put_nodes, put_user, request, requests, rules,
};

const TENANTS: [&str; 4] = ["t_a", "t_b", "t_c", "t_d"];

fn limit(largest: i64) -> impl Strategy<Value = Limit> {
    prop_oneof![1 => Just(Limit::Unlimited), 1 => Just(Limit::Of(0)), 2 => (0..=largest).prop_map(Limit::Of)]
}

fn quotas() -> impl Strategy<Value = Vec<Option<Quota>>> {
    let quota = (0..12i64, limit(10), limit(12), 0..3u32).prop_map(|(guarantee, borrow, lend, weight)| Quota {
        guarantee,
        borrow,
        lend,
        weight,
    });
    prop::collection::vec(prop::option::weighted(0.8, quota), TENANTS.len())
}

/// A pool of four tenants that hold something, with one limited user, and sometimes with nodes.
fn headrooms() -> impl Strategy<Value = Headroom> {
    let held = prop::collection::vec(0..8i64, TENANTS.len());
    let nodes = prop::option::of(prop::collection::vec((4..10u64, 0..5u64), 1..6));
    (limit(40), quotas(), held, 0..8i64, nodes).prop_map(|(capacity, quotas, held, of_user, nodes)| {
        let tenants: Vec<_> = TENANTS.into_iter().zip(quotas).collect();
        let mut headroom = pool(capacity, &tenants);
        put_user(&mut headroom, "alice", of_user);
        for (tenant, held) in TENANTS.iter().zip(held).filter(|(_, held)| *held > 0) {
            hold(&mut headroom, &format!("held by {tenant}"), tenant, held);
        }
        if let Some(nodes) = nodes {
            put_nodes(&mut headroom, &nodes);
        }
        headroom
    })
}

fn random_requests() -> impl Strategy<Value = Vec<Request>> {
    let one = (0..TENANTS.len(), 1..7i64, any::<bool>(), any::<bool>(), -1..=1i32, 0..4i64);
    prop::collection::vec(one, 0..20).prop_map(|all| {
        let request = |(number, (tenant, cores, has_user, has_pods, priority, age))| {
            let (id, tenant) = (format!("e{number:02}"), TENANTS[tenant]);
            let plain = if has_user { for_user(&id, tenant, "alice", cores) } else { request(&id, tenant, cores) };
            // Half of the ages are beyond patience.
            let asked_at_ms = NOW_MS - 20_000 - 30_000 * age;
            let request = Request { priority, asked_at_ms, ..plain };
            if has_pods { on_a_node(request) } else { request }
        };
        all.into_iter().enumerate().map(request).collect()
    })
}

fn share(headroom: &Headroom, scopes: &Scopes, ask: &Amount) -> Share {
    headroom.ledger.share(scopes, ask, headroom.weights.get(scopes.tenant()).copied().unwrap_or(1))
}

/// The part of what no guarantee covers that the tenant has with the request; pools limit only CPU here.
fn portion(headroom: &Headroom, request: &Request) -> Share {
    let scopes = &request.reservation.scopes;
    let (tenant, pool) =
        (headroom.ledger.scope(scopes.tenant()).unwrap(), headroom.ledger.scope(scopes.pool()).unwrap());
    let asked = request.reservation.amounts.nominal();
    let whole = |amount: i64| u128::try_from(amount).unwrap();
    let engines = whole(tenant.counter.held.engines + asked.engines);
    match pool.pool_component(Component::Cpu).unwrap().unguaranteed {
        Limit::Unlimited => Share::Thousandths { numerator: engines, denominator: 1 },
        Limit::Of(0) => Share::Infinite,
        Limit::Of(limit) => {
            let held = whole(tenant.counter.held.cpu_m + asked.cpu_m);
            Share::Thousandths { numerator: 1_000 * held, denominator: whole(limit) }
        }
    }
}

fn is_guaranteed(headroom: &Headroom, request: &Request) -> bool {
    let tenant = headroom.ledger.scope(request.reservation.scopes.tenant()).unwrap();
    let asked = request.reservation.amounts.nominal();
    Component::ALL.into_iter().any(|component| tenant.guarantees().amount.get(component).is_some())
        && Component::ALL.into_iter().all(|component| {
            let guarantee = tenant.guarantees().amount.get(component).unwrap_or(i64::MAX);
            tenant.counter.held.get(component) + asked.get(component) <= guarantee
        })
}

/// The grants of a loop that orders everything again before each step, and nothing else that `admit` does to be fast.
fn step_by_step(requests: &[Request], headroom: &Headroom) -> Vec<String> {
    let mut headroom = headroom.clone();
    let is_possible = |request: &&Request| {
        let oversized = request.pods.and_then(|pods| headroom.nodes.oversized(POOL, &pods));
        headroom.ledger.impossible(&request.reservation, 0).is_none() && oversized.is_none()
    };
    let mut left: Vec<&Request> = requests.iter().filter(is_possible).collect();
    let (mut granted, mut borrowers_wait, mut blocked) = (Vec::new(), false, BTreeSet::new());
    loop {
        let mut heads: BTreeMap<&str, &Request> = BTreeMap::new();
        left.sort_by_key(|request| (Reverse(request.priority), request.asked_at_ms, request.id()));
        let (within, beyond): (Vec<&Request>, Vec<&Request>) =
            left.iter().partition(|request| is_guaranteed(&headroom, request));
        for request in within.into_iter().chain(beyond) {
            heads.entry(request.reservation.scopes.tenant_name()).or_insert(request);
        }
        let rank = |request: &&Request| {
            let scopes = &request.reservation.scopes;
            let share = share(&headroom, scopes, request.reservation.amounts.nominal());
            let guaranteed = is_guaranteed(&headroom, request);
            let is_compared = !guaranteed && share == Share::ZERO;
            (
                (!guaranteed, share),
                headroom.ledger.borrows(scopes, request.reservation.amounts.nominal()),
                if is_compared { portion(&headroom, request) } else { Share::ZERO },
                Reverse(request.priority),
                request.asked_at_ms,
                request.id().to_owned(),
            )
        };
        let Some(head) = heads.into_values().min_by(|one, other| rank(one).cmp(&rank(other))) else { return granted };
        left.retain(|request| request.id() != head.id());
        let scopes = &head.reservation.scopes;
        let waits_behind = scopes.policy().any(|key| blocked.contains(&(scopes.tenant_name(), key.clone())));
        let borrows = headroom.ledger.borrows(scopes, head.reservation.amounts.nominal());
        if waits_behind || borrowers_wait && borrows {
            continue;
        }
        let nodes = head.pods.map(|pods| headroom.nodes.take(POOL, &pods));
        let short = headroom.ledger.shortages(&head.reservation, NOW_MS).unwrap();
        match nodes {
            None | Some(Ok(_)) if short.is_empty() => {
                headroom.ledger.reserve(&head.reservation, AT).unwrap();
                granted.push(head.id().to_owned());
                continue;
            }
            Some(Ok(taken)) => headroom.nodes.put_back(&taken),
            Some(Err(_)) | None => {}
        }
        let is_of_pool =
            |shortage: &Shortage| shortage.scope == *scopes.pool() && shortage.of != model::ledger::Of::Unguaranteed;
        borrowers_wait |= short.iter().all(is_of_pool) && is_guaranteed(&headroom, head);
        if NOW_MS - head.asked_at_ms >= 60_000 {
            let policy = short.iter().filter(|shortage| shortage.scope != *scopes.pool());
            blocked.extend(policy.map(|shortage| (scopes.tenant_name(), shortage.scope.clone())));
        }
    }
}

/// What is held above each limit of the scopes, by scope and kind of the limit.
fn excess(ledger: &Ledger) -> Vec<i64> {
    let mut all = Vec::new();
    for (_, scope) in ledger.scopes() {
        let mut counters = vec![scope.counter];
        if let Role::Pool(row) = scope.role {
            counters.extend([row.shared, row.unguaranteed]);
        }
        for counter in counters {
            let left = Component::ALL.map(|component| counter.left(component).unwrap_or(i64::MAX));
            all.extend(left.map(|left| (-left.max(-i64::MAX)).max(0)));
        }
    }
    all
}

fn ids<'a>(admission: &'a Admission<'a>) -> Vec<&'a str> {
    admission.granted.iter().map(|request| request.id()).collect()
}

fn is_short_of_shared_or_tenant(cause: &Cause<'_>) -> bool {
    let Cause::Short(shortages) = cause else { return false };
    shortages.amounts.iter().any(|shortage| {
        shortage.scope.kind == model::ledger::ScopeKind::Tenant || shortage.of == model::ledger::Of::Shared
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, ..ProptestConfig::default() })]

    #[test]
    fn grants_are_those_of_a_loop_that_ranks_every_head_again(headroom in headrooms(), all in random_requests()) {
        let admission = admit(&all, &mut headroom.clone(), &rules());
        prop_assert_eq!(ids(&admission), step_by_step(&all, &headroom));
    }

    #[test]
    fn no_grant_raises_anything_above_its_limit(headroom in headrooms(), all in random_requests()) {
        let mut after = headroom.clone();
        let admission = admit(&all, &mut after, &rules());
        for (before, after) in excess(&headroom.ledger).into_iter().zip(excess(&after.ledger)) {
            prop_assert!(after <= before, "{} above the limit before, {} after", before, after);
        }
        prop_assert!(after.ledger.drifts().unwrap().is_empty());
        let charged = after.ledger.reservations().filter(|reservation| reservation.state.is_charged()).count();
        let held = headroom.ledger.reservations().count();
        prop_assert_eq!(charged, held + admission.granted.len());
    }

    #[test]
    fn each_request_is_granted_or_queued_or_rejected_in_any_order_of_the_input(
        headroom in headrooms(), all in random_requests(), seed in any::<u64>(),
    ) {
        let admission = admit(&all, &mut headroom.clone(), &rules());
        let mut found: Vec<&str> = ids(&admission);
        found.extend(admission.queued.iter().map(|queued| queued.request.id()));
        found.extend(admission.rejected.iter().map(|rejected| rejected.request.id()));
        found.sort_unstable();
        let every: Vec<&str> = all.iter().map(Request::id).collect();
        prop_assert_eq!(found, every);
        let mut permuted = all.clone();
        let hashed = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        permuted.sort_by_key(|request| request.id().bytes().fold(seed, hashed));
        let other = admit(&permuted, &mut headroom.clone(), &rules());
        prop_assert_eq!(&admission.granted, &other.granted);
        prop_assert_eq!(&admission.queued, &other.queued);
        let positions: Vec<usize> = admission.queued.iter().map(|queued| queued.position).collect();
        prop_assert_eq!(positions, (1..=admission.queued.len()).collect::<Vec<_>>());
    }

    #[test]
    fn engines_without_a_slot_are_admitted_like_those_with_one(
        headroom in headrooms(), all in random_requests(), has_slot in prop::collection::vec(any::<bool>(), 20),
    ) {
        let unplaced = |request: &Request| {
            let mut reservation = (*request.reservation).clone();
            let unit = UnitName::new("uc_1").unwrap();
            reservation.holder = Holder::Engine { unit, incarnation: Incarnation::UNDRAWN };
            Request { reservation: Arc::new(reservation), ..request.clone() }
        };
        let requests = all.iter().zip(has_slot);
        let some: Vec<Request> =
            requests.map(|(each, has_slot)| if has_slot { each.clone() } else { unplaced(each) }).collect();
        let (mut after, mut after_some) = (headroom.clone(), headroom);
        let (admission, of_some) = (admit(&all, &mut after, &rules()), admit(&some, &mut after_some, &rules()));
        prop_assert_eq!(ids(&admission), ids(&of_some));
        let queued = |admission: &Admission<'_>| -> Vec<(String, String)> {
            admission.queued.iter().map(|queued| (queued.request.id().to_owned(), queued.reason())).collect()
        };
        prop_assert_eq!(queued(&admission), queued(&of_some));
        let rejected = |admission: &Admission<'_>| -> Vec<(String, String)> {
            admission.rejected.iter().map(|rejected| (rejected.request.id().to_owned(), rejected.reason())).collect()
        };
        prop_assert_eq!(rejected(&admission), rejected(&of_some));
        prop_assert!(after.ledger.scopes().eq(after_some.ledger.scopes()), "the same is charged");
    }

    #[test]
    fn a_head_blocks_no_other_tenant_that_is_within_its_guarantee(headroom in headrooms(), all in random_requests()) {
        // After the round whatever is queued and neither waits behind a sibling nor borrows is really short.
        let mut after = headroom;
        let admission = admit(&all, &mut after, &rules());
        for queued in &admission.queued {
            match &queued.cause {
                Cause::Short(_) => {
                    let nodes = queued.request.pods.map(|pods| after.nodes.clone().take(POOL, &pods));
                    let short = after.ledger.shortages(&queued.request.reservation, NOW_MS).unwrap();
                    prop_assert!(!short.is_empty() || matches!(nodes, Some(Err(_))), "{:?}", queued);
                }
                Cause::Behind { request, .. } => {
                    let tenant = |request: &Request| request.reservation.scopes.tenant_name().to_owned();
                    prop_assert_eq!(tenant(request), tenant(queued.request));
                }
                Cause::Yields { request } => {
                    let asked = queued.request.reservation.amounts.nominal();
                    prop_assert!(after.ledger.borrows(&queued.request.reservation.scopes, asked));
                    let blocker = admission.queued.iter().find(|other| other.request == *request);
                    let is_of_pool = |cause: &Cause<'_>| matches!(cause, Cause::Short(short) if short.are_of_pool());
                    prop_assert!(blocker.is_some_and(|blocker| is_of_pool(&blocker.cause)), "{:?}", blocker);
                }
                Cause::Refused(refusal) => prop_assert!(false, "{:?}", refusal),
            }
        }
    }

    #[test]
    fn within_its_exclusive_part_a_tenant_is_short_of_nothing_shared(
        headroom in headrooms(), all in random_requests(),
    ) {
        let mut after = headroom;
        let admission = admit(&all, &mut after, &rules());
        for queued in admission.queued.iter().filter(|queued| is_short_of_shared_or_tenant(&queued.cause)) {
            let scopes = &queued.request.reservation.scopes;
            let tenant = after.ledger.scope(scopes.tenant()).unwrap();
            // What the tenant held when the request was refused is at most what it holds now.
            let held = tenant.counter.held.cpu_m + queued.request.reservation.amounts.nominal().cpu_m;
            prop_assert!(held > tenant.guarantees().exclusive.cpu_m, "{:?}", queued);
        }
    }

    #[test]
    fn tenants_without_quotas_differ_by_at_most_one_engine(
        capacity in prop::option::of(0..60i64), nodes in prop::option::of(1..6usize), cores in 1..4i64,
        counts in (30..40usize, 30..40usize), age in 0..10i64,
    ) {
        let capacity = capacity.map_or(Limit::Unlimited, Limit::Of);
        let mut headroom = pool(capacity, &[("t_a", None), ("t_b", None)]);
        if let Some(nodes) = nodes {
            put_nodes(&mut headroom, &vec![(9, 0); nodes]);
        }
        let older = |request: Request| Request { asked_at_ms: request.asked_at_ms - age, ..on_a_node(request) };
        let mut all: Vec<Request> = requests("a", "t_a", cores, counts.0).into_iter().map(older).collect();
        all.extend(requests("b", "t_b", cores, counts.1).into_iter().map(on_a_node));
        let admission = admit(&all, &mut headroom, &rules());
        let of = |tenant: &str| {
            let is_of = |request: &&&Request| request.reservation.scopes.tenant_name() == tenant;
            admission.granted.iter().filter(is_of).count()
        };
        let is_all = admission.queued.is_empty();
        prop_assert!(is_all || of("t_a").abs_diff(of("t_b")) <= 1, "{} and {}", of("t_a"), of("t_b"));
    }

    #[test]
    fn equal_tenants_differ_by_at_most_one_engine(
        guarantee in 0..10i64, weight in 1..3u32, cores in 1..4i64, unguaranteed in 0..40i64,
        counts in (30..40usize, 30..40usize),
    ) {
        let quota = Some(Quota { guarantee, borrow: Limit::Unlimited, lend: Limit::Unlimited, weight });
        let mut headroom = pool(Limit::Of(2 * guarantee + unguaranteed), &[("t_a", quota), ("t_b", quota)]);
        let mut all = requests("a", "t_a", cores, counts.0);
        all.extend(requests("b", "t_b", cores, counts.1));
        let admission = admit(&all, &mut headroom, &rules());
        let of = |tenant: &str| {
            let is_of = |request: &&&Request| request.reservation.scopes.tenant_name() == tenant;
            admission.granted.iter().filter(is_of).count()
        };
        prop_assert!(of("t_a").abs_diff(of("t_b")) <= 1, "{} and {}", of("t_a"), of("t_b"));
    }
}
