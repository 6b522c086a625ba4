//! Properties of random pools.
//!
//! A failure prints the pool, and proptest the seed.

use model::quota::{Guarantee, Limit, PoolComponent, Share, TenantComponent};
use proptest::prelude::*;

use crate::sample::{NONE, UNLIMITED, pool, tenant};

fn limits(largest: i64) -> impl Strategy<Value = Limit> {
    prop_oneof![1 => Just(UNLIMITED), 1 => Just(NONE), 2 => (0..=largest).prop_map(Limit::Of)]
}

/// Tenants in any state, also one that lowered limits left: held above the limit, guarantees above the capacity.
fn tenants() -> impl Strategy<Value = Vec<TenantComponent>> {
    let guarantee =
        (0..30i64, limits(30), limits(40)).prop_map(|(amount, borrow, lend)| Guarantee { amount, borrow, lend });
    let tenant = (prop::option::weighted(0.7, guarantee), prop_oneof![Just(0), 0..10i64, 0..40i64]);
    prop::collection::vec(tenant.prop_map(|(guarantee, held)| TenantComponent { guarantee, held }), 1..6)
}

/// What is left of a guarantee after all of it that may be lent was.
fn exclusive(tenant: &TenantComponent) -> i64 {
    tenant.guarantee.map_or(0, |guarantee| match guarantee.lend {
        Limit::Of(lend) => guarantee.amount - lend.min(guarantee.amount),
        Limit::Unlimited => 0,
    })
}

/// The conditions under which the ledger's conditional UPDATEs charge a request, written independently of `headroom`.
fn is_chargeable(capacity: Limit, tenants: &[TenantComponent], at: usize, ask: i64) -> bool {
    let outside = |tenants: &[TenantComponent]| {
        tenants.iter().map(|tenant| (tenant.held - exclusive(tenant)).max(0)).sum::<i64>()
    };
    let unguaranteed = |tenants: &[TenantComponent]| {
        tenants.iter().filter(|tenant| tenant.guarantee.is_none()).map(|tenant| tenant.held).sum::<i64>()
    };
    let mut after = tenants.to_vec();
    after[at].held += ask;
    let guaranteed: i64 = tenants.iter().filter_map(|tenant| tenant.guarantee).map(|guarantee| guarantee.amount).sum();
    let lent: i64 = tenants.iter().filter_map(|tenant| Some(tenant.guarantee?.amount - exclusive(tenant))).sum();
    let free = match capacity {
        Limit::Of(capacity) => (capacity - guaranteed).max(0),
        Limit::Unlimited => 1 << 40,
    };
    after[at].limit().allows(after[at].held)
        && (outside(&after) == outside(tenants) || outside(&after) <= free + lent)
        && (unguaranteed(&after) == unguaranteed(tenants) || unguaranteed(&after) <= free)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5_000, max_global_rejects: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn headroom_is_exactly_what_the_conditions_of_a_charge_allow(
        capacity in limits(200), tenants in tenants(), at in any::<prop::sample::Index>(),
    ) {
        let at = at.index(tenants.len());
        let headroom = PoolComponent::new(capacity, &tenants).unwrap().headroom(&tenants[at]);
        for ask in 1..=200 {
            prop_assert_eq!(headroom.allows(ask), is_chargeable(capacity, &tenants, at, ask), "{}: {:?}", ask, headroom);
        }
    }

    #[test]
    fn a_grant_within_headroom_breaks_no_limit(
        capacity in limits(200), tenants in tenants(), at in any::<prop::sample::Index>(), ask in 1..60i64,
    ) {
        let at = at.index(tenants.len());
        let before = PoolComponent::new(capacity, &tenants).unwrap();
        let mut after = tenants.clone();
        // Asks above the headroom become the headroom, so that the limits themselves are reached.
        after[at].held += match before.headroom(&tenants[at]) {
            Limit::Of(headroom) => ask.min(headroom).max(0),
            Limit::Unlimited => ask,
        };
        prop_assume!(after[at].held > tenants[at].held);
        prop_assert!(after[at].limit().allows(after[at].held), "held is at most the limit");
        let pool = PoolComponent::new(capacity, &after).unwrap();
        if after[at].guarantee.is_none() {
            prop_assert!(pool.unguaranteed.allows(pool.unguaranteed_held), "tenants without a guarantee");
        }
        prop_assert!(pool.shared_held == before.shared_held || pool.shared.allows(pool.shared_held));
    }

    #[test]
    fn a_sequence_of_grants_never_holds_more_than_exists(
        capacity in 0..100i64, tenants in tenants(),
        asks in prop::collection::vec((any::<prop::sample::Index>(), 1..12i64, prop::bool::weighted(0.2)), 1..60),
    ) {
        let mut tenants: Vec<_> = tenants.into_iter().map(|tenant| TenantComponent { held: 0, ..tenant }).collect();
        let guaranteed: i64 = tenants.iter().filter_map(|tenant| Some(tenant.guarantee?.amount)).sum();
        for (at, ask, is_release) in asks {
            let at = at.index(tenants.len());
            let pool = PoolComponent::new(Limit::Of(capacity), &tenants).unwrap();
            if is_release {
                tenants[at].held = (tenants[at].held - ask).max(0);
            } else if pool.headroom(&tenants[at]).allows(ask) {
                tenants[at].held += ask;
            }
            let pool = PoolComponent::new(Limit::Of(capacity), &tenants).unwrap();
            prop_assert!(tenants.iter().all(|tenant| tenant.limit().allows(tenant.held)));
            prop_assert!(pool.unguaranteed.allows(pool.unguaranteed_held));
            prop_assert!(pool.shared.allows(pool.shared_held));
            prop_assert!(tenants.iter().map(|tenant| tenant.held).sum::<i64>() <= capacity.max(guaranteed));
            for tenant in &tenants {
                let unused = tenant.exclusive() - tenant.held;
                prop_assert!(unused <= 0 || pool.headroom(tenant).allows(unused), "what is exclusive is always granted");
            }
        }
    }

    #[test]
    fn shares_are_ordered_as_their_quotients(
        tenants in prop::collection::vec((0..60i64, 0..30i64, 0..4u32, prop::sample::select(vec![0, 1, 2, 3, 5, 8])), 2),
    ) {
        let shares: Vec<(Share, i64)> = tenants
            .into_iter()
            .map(|(held, guarantee, weight, shared)| {
                let pool = PoolComponent { shared: Limit::Of(shared), ..pool(0, &[]) };
                let share = Share::new([(&pool, &tenant(guarantee, held, UNLIMITED, UNLIMITED), 0)], weight);
                // A common multiple of all shared amounts × weights makes the quotients whole numbers.
                let quotient = match ((held - guarantee).max(0), shared * i64::from(weight)) {
                    (0, _) => 0,
                    (_, 0) => i64::MAX,
                    (borrowed, divisor) => 720 * borrowed / divisor,
                };
                (share, quotient)
            })
            .collect();
        prop_assert_eq!(shares[0].0.cmp(&shares[1].0), shares[0].1.cmp(&shares[1].1));
    }
}
