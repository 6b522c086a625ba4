//! The tables and fixtures of the design with exact numbers.

use model::quota::{Limit, PoolComponent, Share, TenantComponent, nominal_capacity, pool_limit};
use model::resource::MAX_AMOUNT;

use crate::sample::{NONE, UNLIMITED, pool, tenant, without_quota};

/// How many engines of this size the tenant at `at` is granted, one after the other.
fn grants(capacity: Limit, tenants: &mut [TenantComponent], at: usize, engine: i64) -> usize {
    (0..1_000)
        .take_while(|_| {
            let pool = PoolComponent::new(capacity, &*tenants).unwrap();
            let is_granted = pool.headroom(&tenants[at]).allows(engine);
            tenants[at].held += if is_granted { engine } else { 0 };
            is_granted
        })
        .count()
}

#[test]
fn a_borrow_limit_bounds_what_a_tenant_borrows() {
    let mut tenants = [tenant(20, 20, Limit::Of(10), UNLIMITED), tenant(20, 0, UNLIMITED, UNLIMITED)];
    let pool = pool(40, &tenants);
    let expected = PoolComponent { unguaranteed: NONE, unguaranteed_held: 0, shared: Limit::Of(40), shared_held: 20 };
    assert_eq!(pool, expected);
    assert_eq!((tenants[0].limit(), tenants[0].exclusive(), tenants[0].shared_held()), (Limit::Of(30), 0, 20));
    assert_eq!(pool.headroom(&tenants[0]), Limit::Of(10));
    assert_eq!(grants(Limit::Of(40), &mut tenants, 0, 5), 2, "the third is refused");
}

#[test]
fn a_guarantee_that_others_borrow_is_granted_as_far_as_it_is_free() {
    let mut tenants = [tenant(20, 30, Limit::Of(10), UNLIMITED), tenant(20, 0, UNLIMITED, UNLIMITED)];
    assert_eq!(pool(40, &tenants).headroom(&tenants[1]), Limit::Of(10));
    assert_eq!(pool(40, &tenants).headroom(&tenants[0]), NONE);
    assert_eq!(grants(Limit::Of(40), &mut tenants, 1, 5), 2, "of four");
}

#[test]
fn a_lend_limit_keeps_a_part_exclusive() {
    let tenants = [tenant(20, 20, UNLIMITED, UNLIMITED), tenant(20, 0, UNLIMITED, Limit::Of(5))];
    let pool = pool(40, &tenants);
    assert_eq!((tenants[1].exclusive(), pool.shared, pool.shared_held), (15, Limit::Of(25), 20));
    assert_eq!(pool.headroom(&tenants[0]), Limit::Of(5));
    assert_eq!(pool.headroom(&tenants[1]), Limit::Of(20));
    assert_eq!(tenant(20, 0, UNLIMITED, NONE).exclusive(), 20);
    assert_eq!(tenant(20, 0, UNLIMITED, Limit::Of(21)).exclusive(), 0, "more than the guarantee is not lent");
}

/// The tenants A, B and C of the design's last two rows, each of which asks for 5.
fn borrowers() -> [TenantComponent; 3] {
    [(20, 10), (10, 15), (10, 10)].map(|(guarantee, held)| tenant(guarantee, held, UNLIMITED, UNLIMITED))
}

fn shares(weights: [u32; 3]) -> [Share; 3] {
    let tenants = borrowers();
    let pool = pool(40, &tenants);
    [0, 1, 2].map(|at| Share::new([(&pool, &tenants[at], 5)], weights[at]))
}

const fn thousandths(number: u128) -> Share {
    Share::Thousandths { numerator: number, denominator: 1 }
}

#[test]
fn the_tenant_that_borrows_the_smallest_share_comes_first() {
    let tenants = borrowers();
    for tenant in &tenants {
        assert_eq!(pool(40, &tenants).headroom(tenant), Limit::Of(5), "5 are free");
    }
    let [a, b, c] = shares([1, 1, 1]);
    assert_eq!([a, b, c], [thousandths(0), thousandths(250), thousandths(125)]);
    assert!(a < c && c < b, "A is admitted");
    assert_eq!(shares([1, 2, 1]), [thousandths(0), thousandths(125), thousandths(125)]);
}

#[test]
fn a_share_is_that_of_the_component_that_is_borrowed_most() {
    let cpu = [tenant(10, 15, UNLIMITED, UNLIMITED), tenant(30, 0, UNLIMITED, UNLIMITED)];
    let memory = [tenant(10, 20, UNLIMITED, UNLIMITED), tenant(20, 0, UNLIMITED, UNLIMITED)];
    let engines = [without_quota(1_000), without_quota(0)];
    let pools = [pool(40, &cpu), pool(30, &memory), pool(2_000, &engines)];
    let components = [(&pools[0], &cpu[0], 0), (&pools[1], &memory[0], 0), (&pools[2], &engines[0], 500)];
    let third = Share::Thousandths { numerator: 1_000, denominator: 3 };
    assert_eq!(Share::new(components, 1), third, "10 of 30, not 5 of 40; engines have no guarantee");
    assert_eq!(Share::new([components[0]], 1), thousandths(125));
    assert_eq!(Share::new([components[2]], 1), Share::ZERO);
    assert_eq!(Share::new([(&pools[1], &memory[0], -10)], 1), Share::ZERO, "the share after a loss");
    assert_eq!(Share::new([(&pools[1], &memory[0], -9)], 1), Share::Thousandths { numerator: 100, denominator: 3 });
}

#[test]
fn a_share_is_infinite_only_if_something_is_borrowed() {
    let borrower = tenant(10, 10, UNLIMITED, Limit::Of(0));
    let none_shared = pool(10, &[borrower]);
    assert_eq!(none_shared.shared, NONE);
    assert_eq!(Share::new([(&none_shared, &borrower, 0)], 0), Share::ZERO);
    assert_eq!(Share::new([(&none_shared, &borrower, 1)], 1), Share::Infinite, "nothing is shared");
    let shared = pool(20, &[borrower]);
    assert_eq!(Share::new([(&shared, &borrower, 1)], 0), Share::Infinite, "the weight is 0");
    assert_eq!(Share::new([(&shared, &borrower, 1)], 1), thousandths(100));
    let unlimited = PoolComponent::new(UNLIMITED, &[borrower]).unwrap();
    assert_eq!(Share::new([(&unlimited, &borrower, 1)], 1), Share::ZERO, "a part of something unlimited");
    assert_eq!(Share::new([(&unlimited, &borrower, 1)], 0), Share::Infinite);
    assert!(!Share::Infinite.is_finite() && Share::ZERO.is_finite());
}

/// R4-14: three tenants with guarantees that fill the pool, and engines of 1 CPU.
#[test]
fn hard_partitioning_grants_the_guarantee_and_no_more() {
    let mut tenants = [18_000, 12_000, 12_000].map(|guarantee| tenant(guarantee, 0, NONE, UNLIMITED));
    assert_eq!(grants(Limit::Of(42_000), &mut tenants, 0, 1_000), 18);
    let pool = pool(42_000, &tenants);
    assert_eq!(pool.headroom(&tenants[0]), NONE, "the 19th waits for the tenant's limit");
    assert_eq!((pool.shared, pool.shared_held), (Limit::Of(42_000), 18_000), "24 CPU are free");
    assert_eq!(tenants[0].limit(), Limit::Of(18_000));
    for at in [1, 2] {
        assert_eq!(grants(Limit::Of(42_000), &mut tenants, at, 1_000), 12);
    }
}

/// R4-16: one node of 22 CPU with an overcommit of 200 %, and engines of 1 CPU that request 500m.
#[test]
fn an_overcommit_doubles_the_engines_of_a_node() {
    let limit = pool_limit(Limit::Of(22_000), 0);
    let capacity = nominal_capacity(limit, 200);
    assert_eq!(capacity, Limit::Of(44_000));
    let mut tenants = [without_quota(0)];
    assert_eq!(grants(capacity, &mut tenants, 0, 1_000), 44);
    let requested = 44 * 500;
    assert!(limit.allows(requested) && !limit.allows(requested + 500), "the 45th is short of the pool's CPU");
}

/// R0-15: three nodes of 8 CPU of which 2 are protected.
#[test]
fn the_protected_part_of_a_pool_is_never_granted() {
    let limit = pool_limit(Limit::Of(3 * 8_000), 2_000);
    let tenants = [without_quota(0)];
    let headroom = PoolComponent::new(nominal_capacity(limit, 100), &tenants).unwrap().headroom(&tenants[0]);
    for limit in [limit, headroom] {
        assert!(limit.allows(24_000 - 2_000), "2 CPU are left");
        assert!(!limit.allows(24_000 - 1_900), "1.9 CPU would be left");
    }
    assert_eq!(pool_limit(UNLIMITED, 2_000), UNLIMITED);
}

#[test]
fn without_quotas_and_capacity_nothing_is_limited() {
    let tenants = [without_quota(MAX_AMOUNT), without_quota(0)];
    let pool = PoolComponent::new(UNLIMITED, &tenants).unwrap();
    assert_eq!((pool.unguaranteed, pool.shared, pool.unguaranteed_held), (UNLIMITED, UNLIMITED, MAX_AMOUNT));
    assert_eq!(pool.headroom(&tenants[1]), UNLIMITED);
    // A quota limits its own tenant also there.
    let quota = [tenant(20, 5, Limit::Of(10), UNLIMITED)];
    assert_eq!(PoolComponent::new(UNLIMITED, &quota).unwrap().headroom(&quota[0]), Limit::Of(25));
}

#[test]
fn tenants_without_a_guarantee_share_what_no_guarantee_covers() {
    let tenants = [tenant(30, 0, UNLIMITED, UNLIMITED), without_quota(4), without_quota(3)];
    let pool = pool(40, &tenants);
    assert_eq!((pool.unguaranteed, pool.unguaranteed_held), (Limit::Of(10), 7));
    assert_eq!(pool.headroom(&tenants[1]), Limit::Of(3), "although 33 of the pool are free");
    assert_eq!(pool.headroom(&tenants[0]), Limit::Of(33));
}

#[test]
fn limits_below_what_is_held_leave_a_negative_headroom() {
    let tenants = [tenant(10, 25, Limit::Of(5), UNLIMITED), without_quota(8)];
    let pool = pool(15, &tenants);
    assert_eq!(pool.headroom(&tenants[0]), Limit::Of(-18), "33 are held, 15 exist");
    assert_eq!(pool.headroom(&tenants[1]), Limit::Of(-18));
    // What is exclusive is granted also then.
    let tenants = [tenant(10, 25, Limit::Of(20), UNLIMITED), tenant(10, 4, NONE, NONE)];
    let pool = PoolComponent::new(Limit::Of(20), &tenants).unwrap();
    assert_eq!((pool.shared, pool.shared_held), (Limit::Of(10), 25));
    assert_eq!(pool.headroom(&tenants[1]), Limit::Of(6));
    assert_eq!(pool.headroom(&tenants[0]), Limit::Of(-15));
    let tenants = [tenants[0], TenantComponent { held: 10, ..tenants[1] }];
    let pool = PoolComponent::new(Limit::Of(20), &tenants).unwrap();
    assert_eq!(pool.headroom(&tenants[1]), Limit::Of(-15), "nothing of the exclusive part is left");
}

#[test]
fn sums_outside_of_64_bits_are_errors() {
    let held = [without_quota(i64::MAX), without_quota(1)];
    assert_eq!(PoolComponent::new(UNLIMITED, &held).unwrap_err().sqlstate(), "22003");
    // Guarantees above the capacity are allowed: what they lend is shared.
    let full = [tenant(i64::MAX, 0, NONE, UNLIMITED), tenant(1, 0, NONE, UNLIMITED)];
    assert_eq!(PoolComponent::new(Limit::Of(0), &full).unwrap_err().sqlstate(), "22003");
    assert_eq!(PoolComponent::new(Limit::Of(0), &full[..1]).unwrap().shared, Limit::Of(i64::MAX));
}
