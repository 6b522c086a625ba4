//! Arithmetic with exact numbers, and its errors.

use model::error::KIND_MISMATCH;
use model::resource::{Kind, MAX_CUSTOM_AMOUNTS, Ratio, Resource, Special};

use crate::sample::{GIB, instances, load, of_kind, queue, special};

fn ratio(text: &str) -> Ratio {
    text.parse().unwrap()
}

#[test]
fn components_are_added_subtracted_multiplied_and_divided_one_by_one() {
    let left = Resource::LoadInstance(instances(6 * GIB, 4_000, 9));
    let right = Resource::LoadInstance(instances(2, 3, 4));
    assert_eq!(left.checked_add(&right).unwrap(), Resource::LoadInstance(instances(6 * GIB + 2, 4_003, 13)));
    assert_eq!(left.checked_sub(&right).unwrap(), Resource::LoadInstance(instances(6 * GIB - 2, 3_997, 5)));
    assert_eq!(left.checked_mul(&right).unwrap(), Resource::LoadInstance(instances(12 * GIB, 12_000, 36)));
    assert_eq!(left.checked_div(&right).unwrap(), Resource::LoadInstance(instances(3 * GIB, 1_333, 2)));
    assert_eq!(right.checked_sub(&left).unwrap(), Resource::LoadInstance(instances(2 - 6 * GIB, -3_997, -5)));
}

#[test]
fn a_driver_and_its_executors_are_combined_with_their_counterparts() {
    let of = |driver, executors| Resource::DriverAndExecutor { driver, executors: queue("root.a", executors) };
    let spark = of(instances(10, 20, 1), instances(30, 40, 2));
    let sum = spark.checked_add(&of(instances(1, 2, 3), instances(4, 5, 6))).unwrap();
    assert_eq!(sum, of(instances(11, 22, 4), instances(34, 45, 8)));
    assert_eq!(spark.checked_sub(&load(1, 2)).unwrap(), of(instances(9, 18, 1), instances(30, 40, 2)));
    assert_eq!(spark.times(ratio("0.5")).unwrap(), of(instances(5, 10, 0), instances(15, 20, 1)));
}

#[test]
fn results_round_down_also_below_zero() {
    let cpu = |cpu_m| Resource::Cpu { cpu_m };
    assert_eq!(cpu(5).times(ratio("0.5")).unwrap(), cpu(2));
    assert_eq!(cpu(-5).times(ratio("0.5")).unwrap(), cpu(-3));
    assert_eq!(cpu(-4).times(ratio("0.5")).unwrap(), cpu(-2));
    assert_eq!(cpu(7).divided_by(ratio("2")).unwrap(), cpu(3));
    assert_eq!(cpu(-7).divided_by(ratio("2")).unwrap(), cpu(-4));
    assert_eq!(cpu(1).divided_by(ratio("0.3")).unwrap(), cpu(3));
    assert_eq!(cpu(7).checked_div(&cpu(2)).unwrap(), cpu(3));
    assert_eq!(cpu(-7).checked_div(&cpu(2)).unwrap(), cpu(-4));
    assert_eq!(cpu(7).checked_div(&cpu(-2)).unwrap(), cpu(-4));
    assert_eq!(cpu(-7).checked_div(&cpu(-2)).unwrap(), cpu(3));
}

#[test]
fn a_ratio_is_exact_where_a_float_is_not() {
    let memory = |memory| Resource::Memory { memory };
    // With doubles the product is 28.999999999999996.
    assert_eq!(memory(100).times(ratio("0.29")).unwrap(), memory(29));
    assert_eq!(memory(9_223_372_036_854_775_807).times(ratio("1")).unwrap(), memory(i64::MAX));
    assert_eq!(memory(4_503_599_627_370_497).divided_by(ratio("0.5")).unwrap(), memory(9_007_199_254_740_994));
}

#[test]
fn custom_amounts_are_combined_over_the_union_of_their_names() {
    let (left, right) = (special(&[("gpu", 6), ("fpga", 1)]), special(&[("gpu", 4), ("tpu", 2)]));
    assert_eq!(left.checked_add(&right).unwrap(), special(&[("gpu", 10), ("fpga", 1), ("tpu", 2)]));
    assert_eq!(left.checked_sub(&right).unwrap(), special(&[("gpu", 2), ("fpga", 1), ("tpu", -2)]));
    assert_eq!(left.checked_mul(&right).unwrap(), special(&[("gpu", 24)]));
    assert_eq!(left.checked_div(&right).unwrap_err().sqlstate(), "22012", "fpga is divided by 0");
    assert_eq!(special(&[("gpu", 6)]).checked_div(&right).unwrap(), special(&[("gpu", 1)]));
    assert_eq!(special(&[("gpu", 0)]), special(&[]), "an amount of 0 is as none");

    let named = |prefix: &str, number: usize| (0..number).map(|at| (format!("{prefix}{at}"), 1)).collect();
    let full = |prefix| Resource::Special(Special::new(named(prefix, MAX_CUSTOM_AMOUNTS)).unwrap());
    assert_eq!(full("a").checked_add(&full("b")).unwrap_err().sqlstate(), "54000");
    assert_eq!(full("a").checked_sub(&full("a")).unwrap(), special(&[]));
    assert_eq!(Special::new(named("a", MAX_CUSTOM_AMOUNTS + 1)).unwrap_err().sqlstate(), "54000");
    for name in [String::new(), "x".repeat(129)] {
        assert_eq!(Special::new([(name, 1)].into()).unwrap_err().sqlstate(), "22023");
    }
}

#[test]
fn overflow_and_division_by_zero_are_errors_in_every_component() {
    let most = Resource::LoadInstance(instances(i64::MAX, i64::MAX, i64::MAX));
    let least = Resource::LoadInstance(instances(i64::MIN, i64::MIN, i64::MIN));
    for component in [instances(1, 0, 0), instances(0, 1, 0), instances(0, 0, 1)] {
        let one = Resource::LoadInstance(component);
        let minus_one = Resource::LoadInstance(instances(-1, -1, -1));
        for error in [
            most.checked_add(&one).unwrap_err(),
            least.checked_sub(&one).unwrap_err(),
            most.checked_mul(&one.times(ratio("2")).unwrap()).unwrap_err(),
            least.checked_div(&minus_one).unwrap_err(),
            most.times(ratio("1.000001")).unwrap_err(),
            most.divided_by(ratio("0.999999")).unwrap_err(),
        ] {
            assert_eq!((error.sqlstate(), error.message.as_str()), ("22003", "bigint out of range"));
        }
        let error = most.checked_div(&one).unwrap_err();
        assert_eq!((error.sqlstate(), error.message.as_str()), ("22012", "division by zero"));
    }
    assert_eq!(most.divided_by(ratio("0")).unwrap_err().sqlstate(), "22012");
}

#[test]
fn a_driver_with_executors_has_no_product_with_a_resource() {
    let spark = of_kind(Kind::DriverAndExecutor);
    for kind in [Kind::Memory, Kind::Cpu, Kind::Load, Kind::LoadInstance, Kind::DriverAndExecutor] {
        let other = of_kind(kind);
        for result in
            [spark.checked_mul(&other), other.checked_mul(&spark), spark.checked_div(&other), other.checked_div(&spark)]
        {
            let error = result.unwrap_err();
            assert_eq!((error.sqlstate(), error.error_code()), ("22023", KIND_MISMATCH), "{error}");
        }
    }
}
