//! The fixtures of the design with exact numbers, granted engine by engine.

use std::sync::Arc;

use model::ledger::{Amounts, Ledger, Of, PoolCapacity, Shortage};
use model::quota::{Limit, Share};
use model::resource::{Amount, MAX_AMOUNT};

use crate::sample::{
    NO_GUARANTEE, UNLIMITED, at, capacity, cores, cpu, engine, guarantee, held, ledger, pool, short, tenant,
};

const NONE: Limit = Limit::Of(0);

/// How many engines of this size the tenant is granted, each in a lineage of its own, and what the next one is short
/// of.
fn grants(ledger: &mut Ledger, of: &str, amounts: Amounts) -> (usize, Option<Shortage>) {
    let first = ledger.reservations().count() as i64;
    for granted in 0..1_000 {
        let request = engine(of, &format!("{of}/{}", first + granted), 1, amounts);
        if let Err(refusal) = ledger.reserve(&Arc::new(request), at(1)) {
            return (granted as usize, Some(short(refusal)));
        }
    }
    (1_000, None)
}

fn word(shortage: Option<Shortage>) -> Option<String> {
    shortage.map(|shortage| shortage.word())
}

/// R4-14: three tenants with guarantees that fill the pool, and engines of 1 CPU.
#[test]
fn hard_partitioning_grants_the_guarantee_and_no_more() {
    let quota = |amount| guarantee(amount, NONE, Limit::Unlimited);
    let tenants = [("t_a", quota(18_000)), ("t_b", quota(12_000)), ("t_c", quota(12_000))];
    let mut ledger = ledger(capacity(42_000), &tenants);
    let (granted, shortage) = grants(&mut ledger, "t_a", cores(1_000));
    let shortage = shortage.unwrap();
    assert_eq!((granted, shortage.word(), shortage.is_retryable), (18, "TENANT_CPU".to_owned(), true));
    assert_eq!((shortage.asked, shortage.left, shortage.limit), (1_000, 0, 18_000));
    assert_eq!(held(&ledger, &pool()), 18_000, "24 CPU are free");
    assert_eq!(grants(&mut ledger, "t_b", cores(1_000)).0, 12);
    assert_eq!(grants(&mut ledger, "t_c", cores(1_000)).0, 12);
}

/// R4-16: one node of 22 CPU with an overcommit of 200 %, and engines of 1 CPU that request 500m.
#[test]
fn an_overcommit_doubles_the_engines_of_a_node() {
    let mut ledger = ledger(PoolCapacity { overcommit_percent: 200, ..capacity(22_000) }, &[("t_a", NO_GUARANTEE)]);
    let halved = Amounts::new(Amount { cpu_m: 1_000, memory: 0, engines: 1 }, 500, 0).unwrap();
    let (granted, shortage) = grants(&mut ledger, "t_a", halved);
    assert_eq!((granted, word(shortage)), (44, Some("POOL_CPU".to_owned())));
    assert_eq!((held(&ledger, &pool()), held(&ledger, &tenant("t_a"))), (22_000, 44_000));
}

/// R0-15: three nodes of 8 CPU of which 2 are protected.
#[test]
fn the_protected_part_of_a_pool_is_never_granted() {
    let protected = Amount { cpu_m: 2_000, ..Amount::ZERO };
    let nodes = PoolCapacity { protected, ..capacity(24_000) };
    let mut tried = ledger(nodes, &[("t_a", NO_GUARANTEE)]);
    assert_eq!(word(grants(&mut tried, "t_a", cores(22_100)).1), Some("POOL_CPU".to_owned()), "1.9 CPU would be left");
    assert_eq!(grants(&mut tried, "t_a", cores(22_000)).0, 1, "2 CPU are left");
}

#[test]
fn a_borrow_limit_bounds_what_a_tenant_borrows() {
    let mut ledger = ledger(
        capacity(40_000),
        &[
            ("t_a", guarantee(20_000, Limit::Of(10_000), Limit::Unlimited)),
            ("t_b", guarantee(20_000, Limit::Unlimited, Limit::Unlimited)),
        ],
    );
    assert_eq!(grants(&mut ledger, "t_a", cores(5_000)).0, 6, "4 within the guarantee and 2 borrowed");
    assert_eq!(grants(&mut ledger, "t_b", cores(5_000)).0, 2, "of four: two are borrowed");
}

#[test]
fn a_lend_limit_keeps_a_part_exclusive() {
    let mut ledger = ledger(
        capacity(40_000),
        &[
            ("t_a", guarantee(20_000, Limit::Unlimited, Limit::Unlimited)),
            ("t_b", guarantee(20_000, Limit::Unlimited, Limit::Of(5_000))),
        ],
    );
    let (granted, shortage) = grants(&mut ledger, "t_a", cores(5_000));
    let shortage = shortage.unwrap();
    assert_eq!((granted, shortage.of, shortage.word()), (5, Of::Shared, "POOL_CPU".to_owned()));
    assert_eq!((shortage.left, shortage.limit), (0, 25_000));
    assert_eq!(grants(&mut ledger, "t_b", cores(5_000)).0, 3, "what is exclusive is never short");
}

#[test]
fn shares_follow_from_the_rows() {
    let quota = |amount| guarantee(amount, Limit::Unlimited, Limit::Unlimited);
    let tenants = [("t_a", quota(20_000)), ("t_b", quota(10_000)), ("t_c", quota(10_000))];
    let mut ledger = ledger(capacity(40_000), &tenants);
    for (of, size) in [("t_a", 10_000), ("t_b", 15_000), ("t_c", 10_000)] {
        ledger.reserve(&Arc::new(engine(of, of, 1, cores(size))), at(1)).unwrap();
    }
    let shares = ["t_a", "t_b", "t_c"].map(|of| {
        let request = engine(of, "next", 1, cores(5_000));
        ledger.share(&request.scopes, &ledger.raise(&request), 1)
    });
    assert_eq!(shares, [0, 250, 125].map(|numerator| Share::Thousandths { numerator, denominator: 1 }));
    let borrows =
        |of, ask| ledger.borrows(&engine(of, "next", 1, cores(0)).scopes, &Amount { cpu_m: ask, ..Amount::ZERO });
    assert_eq!(
        [borrows("t_a", 10_000), borrows("t_a", 10_001), borrows("t_c", 0), borrows("t_c", 1)],
        [false, true, false, true]
    );
}

#[test]
fn tenants_without_a_guarantee_share_what_no_guarantee_covers() {
    let full = guarantee(30_000, NONE, Limit::Unlimited);
    let mut ledger = ledger(capacity(40_000), &[("t_a", full), ("t_b", NO_GUARANTEE), ("t_c", NO_GUARANTEE)]);
    assert_eq!(grants(&mut ledger, "t_b", cores(4_000)).0, 2);
    let (granted, shortage) = grants(&mut ledger, "t_c", cores(1_000));
    let shortage = shortage.unwrap();
    assert_eq!((granted, shortage.of, shortage.left), (2, Of::Unguaranteed, 0), "30 CPU of the pool are free");
}

#[test]
fn a_request_above_a_limit_itself_is_refused_for_good() {
    let mut ledger = ledger(capacity(40_000), &[("t_a", guarantee(10_000, NONE, Limit::Unlimited))]);
    ledger.reserve(&Arc::new(engine("t_a", "one", 1, cores(10_000))), at(1)).unwrap();
    let refusal = ledger.reserve(&Arc::new(engine("t_a", "two", 1, cores(10_001))), at(1)).unwrap_err();
    let shortage = short(refusal);
    assert_eq!((shortage.word(), shortage.is_retryable), ("TENANT_CPU".to_owned(), false));
    assert_eq!((shortage.asked, shortage.left, shortage.limit), (10_001, 0, 10_000));
    let later = short(ledger.reserve(&Arc::new(engine("t_a", "three", 1, cores(10_000))), at(1)).unwrap_err());
    assert!(later.is_retryable);
}

#[test]
fn without_limits_only_the_range_of_numbers_ends_the_grants() {
    let unlimited = PoolCapacity { capacity: UNLIMITED, protected: Amount::ZERO, overcommit_percent: 100 };
    let mut ledger = ledger(unlimited, &[("t_a", NO_GUARANTEE)]);
    // 512 × 2^53 is 2^62.
    let (granted, shortage) = grants(&mut ledger, "t_a", cores(MAX_AMOUNT));
    assert_eq!((granted, word(shortage)), (512, Some("POOL_CPU".to_owned())));
    assert_eq!(cpu(5).cpu_m, Limit::Of(5));
}
