//! Request policies: what a request is charged.

use model::error::{KIND_MISMATCH, KIND_UNKNOWN};
use model::resource::{Amount, Kind, MAX_AMOUNT, RequestPolicy, Resource};

use crate::sample::{instances, of_kind, queue, special};

fn charge(pool: Kind, asked: &Resource) -> Result<Amount, (String, i32)> {
    let policy = RequestPolicy::of(pool).unwrap();
    policy.charge(asked).map_err(|error| (error.sqlstate().to_owned(), error.error_code()))
}

#[test]
fn each_kind_is_charged_its_own_numbers() {
    for (kind, memory, cpu_m, engines) in [
        (Kind::Memory, 101, 0, 0),
        (Kind::Cpu, 0, 103, 0),
        (Kind::Load, 107, 109, 0),
        (Kind::LoadInstance, 113, 127, 131),
        (Kind::Queue, 137, 139, 149),
        // Only the driver is an engine.
        (Kind::DriverAndExecutor, 151 + 167, 157 + 173, 163),
    ] {
        assert_eq!(charge(kind, &of_kind(kind)), Ok(Amount { cpu_m, memory, engines }), "{kind}");
    }
}

#[test]
fn a_pool_accepts_its_kind_and_what_is_promoted_to_it() {
    let mismatch = Err(("22023".to_owned(), KIND_MISMATCH));
    for kind in [Kind::Memory, Kind::Cpu, Kind::Load, Kind::LoadInstance] {
        let own = charge(kind, &of_kind(kind));
        assert_eq!(charge(Kind::DriverAndExecutor, &of_kind(kind)), own);
        assert_eq!(charge(Kind::LoadInstance, &of_kind(kind)), own);
    }
    assert_eq!(charge(Kind::Load, &of_kind(Kind::LoadInstance)), mismatch, "instances would not be charged");
    assert_eq!(charge(Kind::Memory, &of_kind(Kind::Cpu)), mismatch, "CPU would not be charged");
    assert_eq!(charge(Kind::LoadInstance, &of_kind(Kind::DriverAndExecutor)), mismatch);
    assert_eq!(charge(Kind::DriverAndExecutor, &of_kind(Kind::Queue)), mismatch);
    assert_eq!(charge(Kind::Queue, &of_kind(Kind::LoadInstance)), mismatch);
}

#[test]
fn a_kind_without_a_policy_is_unknown_and_custom_amounts_are_not_supported() {
    let error = RequestPolicy::of(Kind::Special).unwrap_err();
    assert_eq!((error.sqlstate(), error.error_code()), ("22023", KIND_UNKNOWN));
    for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Special) {
        assert_eq!(charge(kind, &special(&[("nvidia.com/gpu", 2)])), Err(("0A000".to_owned(), 0)));
    }
}

#[test]
fn negative_amounts_and_amounts_above_the_limit_are_not_charged() {
    let invalid = Err(("22023".to_owned(), 0));
    let spark = |driver, executors| Resource::DriverAndExecutor { driver, executors: queue("root.a", executors) };
    let (none, one) = (instances(0, 0, 0), instances(1, 1, 1));
    for bad in [
        instances(-1, 0, 0),
        instances(0, -1, 0),
        instances(0, 0, -1),
        instances(MAX_AMOUNT + 1, 0, 0),
        instances(0, MAX_AMOUNT + 1, 0),
        instances(0, 0, MAX_AMOUNT + 1),
    ] {
        assert_eq!(charge(Kind::LoadInstance, &Resource::LoadInstance(bad)), invalid);
        assert_eq!(charge(Kind::Queue, &Resource::Queue(queue("root.a", bad))), invalid);
        assert_eq!(charge(Kind::DriverAndExecutor, &spark(bad, one)), invalid);
        assert_eq!(charge(Kind::DriverAndExecutor, &spark(one, bad)), invalid, "a sum hides no negative part");
    }
    let most = instances(MAX_AMOUNT, MAX_AMOUNT, MAX_AMOUNT);
    let all = Amount { cpu_m: MAX_AMOUNT, memory: MAX_AMOUNT, engines: MAX_AMOUNT };
    assert_eq!(charge(Kind::DriverAndExecutor, &spark(most, none)), Ok(all));
    for one in [instances(1, 0, 0), instances(0, 1, 0)] {
        assert_eq!(charge(Kind::DriverAndExecutor, &spark(most, one)), invalid, "the sum is above the limit");
    }
}
