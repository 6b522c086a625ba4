//! Comparison with exact values.

use model::error::KIND_MISMATCH;
use model::resource::{Kind, Resource};

use crate::sample::{GIB, instances, load, of_kind, queue, special};

/// `more_than`, `less_than`, `equals`, `not_less_than`, `not_more_than`, `any_less`.
fn relations(left: &Resource, right: &Resource) -> [bool; 6] {
    [
        left.more_than(right).unwrap(),
        left.less_than(right).unwrap(),
        left.equals(right).unwrap(),
        left.not_less_than(right).unwrap(),
        left.not_more_than(right).unwrap(),
        left.any_less(right).unwrap(),
    ]
}

#[test]
fn a_relation_holds_only_if_it_holds_for_every_component() {
    let (yes, no) = (true, false);
    let wide = load(4 * GIB, 2_000);
    assert_eq!(relations(&wide, &load(2 * GIB, 4_000)), [no, no, no, no, no, yes], "not comparable");
    assert_eq!(relations(&wide, &wide), [no, no, yes, yes, yes, no]);
    assert_eq!(relations(&wide, &load(GIB, 1_000)), [yes, no, no, yes, no, no]);
    assert_eq!(relations(&load(GIB, 1_000), &wide), [no, yes, no, no, yes, yes]);
    assert_eq!(relations(&wide, &load(4 * GIB, 1_000)), [no, no, no, yes, no, no], "one component is equal");
    assert_eq!(relations(&load(4 * GIB, 1_000), &wide), [no, no, no, no, yes, yes]);
}

#[test]
fn mixed_kinds_are_compared_after_promotion() {
    let memory = Resource::Memory { memory: 4 * GIB };
    assert!(memory.equals(&load(4 * GIB, 0)).unwrap());
    assert!(memory.any_less(&load(4 * GIB, 1)).unwrap());
    assert!(of_kind(Kind::DriverAndExecutor).not_less_than(&memory.times("0".parse().unwrap()).unwrap()).unwrap());
    let error = memory.equals(&of_kind(Kind::Queue)).unwrap_err();
    assert_eq!(error.error_code(), KIND_MISMATCH);
    assert_eq!(error.message, "resource kinds \"Memory\" and \"Queue\" do not combine");
}

#[test]
fn a_queue_compares_all_three_numbers() {
    let of = |load| Resource::Queue(queue("root.a", load));
    let all = of(instances(5, 5, 5));
    for less in [instances(4, 5, 5), instances(5, 4, 5), instances(5, 5, 4)] {
        assert!(of(less).any_less(&all).unwrap());
        assert!(of(less).not_more_than(&all).unwrap());
        assert!(!of(less).less_than(&all).unwrap());
        assert!(!of(less).equals(&all).unwrap());
    }
}

#[test]
fn an_absent_custom_amount_is_zero() {
    let (none, one) = (special(&[]), special(&[("nvidia.com/gpu", 1)]));
    assert!(none.any_less(&one).unwrap(), "a scope without GPUs has less than the request");
    assert!(!none.not_less_than(&one).unwrap());
    assert!(one.more_than(&none).unwrap());
    assert!(none.equals(&special(&[("nvidia.com/gpu", 0)])).unwrap());
    assert!(!none.more_than(&none).unwrap() && !none.less_than(&none).unwrap());
}

#[test]
fn sort_keys_are_lexicographic_by_memory_cpu_and_instances() {
    let spark = |memory, executors| Resource::DriverAndExecutor {
        driver: instances(memory, 1, 1),
        executors: queue("root.a", instances(i64::MAX, 5, executors)),
    };
    let ascending = [
        special(&[("gpu", 9)]),
        Resource::Cpu { cpu_m: 9_000 },
        Resource::Memory { memory: 1 },
        load(1, 1),
        Resource::LoadInstance(instances(1, 1, 1)),
        Resource::Queue(queue("root.b", instances(1, 1, 2))),
        Resource::Queue(queue("root.a", instances(2, 0, 0))),
        spark(1, 3),
        spark(1, 4),
        spark(i64::MAX, 0),
    ];
    for pair in ascending.windows(2) {
        assert!(pair[0].sort_key() < pair[1].sort_key(), "{pair:?}");
    }
}
