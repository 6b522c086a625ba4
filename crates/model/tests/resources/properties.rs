//! Properties of every kind, each over 1,000 random values.
//!
//! A failure prints the values, and proptest the seed.

use model::resource::{Kind, LoadInstance, MAX_AMOUNT, Queue, Resource, Special};
use proptest::prelude::*;

/// The values for each property and kind.
const CASES: u32 = 1_000;

/// Amounts of requests, with a preference for few distinct and for large ones, so that equal components occur.
fn amount() -> impl Strategy<Value = i64> {
    prop_oneof![0..4i64, 0..=MAX_AMOUNT, MAX_AMOUNT - 2..=MAX_AMOUNT]
}

/// Amounts with negative ones: differences.
fn difference() -> impl Strategy<Value = i64> {
    (amount(), any::<bool>()).prop_map(|(amount, is_negative)| if is_negative { -amount } else { amount })
}

fn load<A: Strategy<Value = i64> + 'static>(amount: fn() -> A) -> impl Strategy<Value = LoadInstance> {
    (amount(), amount(), amount()).prop_map(|(memory, cpu_m, instances)| LoadInstance { memory, cpu_m, instances })
}

fn queue<A: Strategy<Value = i64> + 'static>(amount: fn() -> A) -> impl Strategy<Value = Queue> {
    load(amount).prop_map(|load| Queue { queue: "root.\"é\"".to_owned(), load })
}

/// Resources of one kind, all of one queue, so that any two of them combine.
fn resource<A: Strategy<Value = i64> + 'static>(kind: Kind, amount: fn() -> A) -> BoxedStrategy<Resource> {
    match kind {
        Kind::Memory => amount().prop_map(|memory| Resource::Memory { memory }).boxed(),
        Kind::Cpu => amount().prop_map(|cpu_m| Resource::Cpu { cpu_m }).boxed(),
        Kind::Load => (amount(), amount()).prop_map(|(memory, cpu_m)| Resource::Load { memory, cpu_m }).boxed(),
        Kind::LoadInstance => load(amount).prop_map(Resource::LoadInstance).boxed(),
        Kind::Queue => queue(amount).prop_map(Resource::Queue).boxed(),
        Kind::DriverAndExecutor => (load(amount), queue(amount))
            .prop_map(|(driver, executors)| Resource::DriverAndExecutor { driver, executors })
            .boxed(),
        Kind::Special => prop::collection::btree_map("[a-d]", amount(), 0..4)
            .prop_map(|amounts| Resource::Special(Special::new(amounts).unwrap()))
            .boxed(),
    }
}

/// The resource without any amount, of the kind and queue of this one.
fn zero(of: &Resource) -> Resource {
    of.times("0".parse().unwrap()).unwrap()
}

macro_rules! properties {
    ($($name:ident: $kind:expr,)*) => {$(
        mod $name {
            use super::*;

            proptest! {
                #![proptest_config(ProptestConfig { cases: CASES, ..ProptestConfig::default() })]

                #[test]
                fn a_sum_less_one_term_is_the_other(a in resource($kind, difference), b in resource($kind, difference)) {
                    let sum = a.checked_add(&b).unwrap();
                    prop_assert_eq!(sum.checked_sub(&b).unwrap(), a.clone());
                    prop_assert_eq!(b.checked_add(&a).unwrap(), sum);
                }

                #[test]
                fn zero_and_one_are_neutral(a in resource($kind, difference)) {
                    let one = "1".parse().unwrap();
                    prop_assert_eq!(&a.checked_add(&zero(&a)).unwrap(), &a);
                    prop_assert_eq!(&a.checked_sub(&zero(&a)).unwrap(), &a);
                    prop_assert_eq!(&a.times(one).unwrap(), &a);
                    prop_assert_eq!(&a.divided_by(one).unwrap(), &a);
                }

                #[test]
                fn at_most_one_strict_relation_holds(a in resource($kind, amount), b in resource($kind, amount)) {
                    let (more, equal, less) = (a.more_than(&b).unwrap(), a.equals(&b).unwrap(), a.less_than(&b).unwrap());
                    prop_assert!(u8::from(more) + u8::from(equal) + u8::from(less) <= 1);
                    prop_assert_eq!(equal, a == b);
                    prop_assert_eq!((more, less), (b.less_than(&a).unwrap(), b.more_than(&a).unwrap()));
                    let (covers, fits) = (a.not_less_than(&b).unwrap(), a.not_more_than(&b).unwrap());
                    prop_assert_eq!(covers && fits, equal);
                    prop_assert!((covers || !more) && (fits || !less));
                    prop_assert_eq!(a.any_less(&b).unwrap(), !covers);
                    prop_assert!(!more || a.sort_key() >= b.sort_key());
                }

                #[test]
                fn printed_json_is_read_as_the_same_value(a in resource($kind, amount)) {
                    let printed = a.to_json().unwrap();
                    prop_assert_eq!(Resource::from_json(&printed).unwrap(), a);
                }
            }
        }
    )*};
}

properties! {
    memory: Kind::Memory,
    cpu: Kind::Cpu,
    load_of_memory_and_cpu: Kind::Load,
    load_instance: Kind::LoadInstance,
    queues: Kind::Queue,
    driver_and_executor: Kind::DriverAndExecutor,
    special: Kind::Special,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_the_parser_panic(
        text in ".{0,60}",
        field in "(memory|cpu|cpu_m|instances|queue|amounts|driver)",
        value in "[-0-9.eE\"gGmM{}\\[\\]tru ]{0,12}",
    ) {
        let _ = Resource::from_json(&text);
        for kind in Kind::ALL {
            let _ = Resource::from_json(&format!(r#"{{"type":"{kind}","memory":1,"{field}":{value}}}"#));
        }
    }
}
