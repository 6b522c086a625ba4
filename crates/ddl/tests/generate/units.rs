//! Resource units: their options and their specs.

use std::collections::BTreeMap;

use model::catalog::{ChargedExecutors, UnitSpec};
use model::change::{Object, UnitPatch};
use model::configuration::Defaults;
use model::engine_type::{EngineType, Executors};
use model::name::UnitName;
use model::on_demand::{IdleTimeout, MAX_SESSIONS_PER_ENGINE, MIN_IDLE_TIMEOUT};
use model::owner::SharedBy;
use model::quantity::{Cpu, Memory};
use model::run_as::RunAs;
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::{cpu, engine_type, key, memory, properties, setting, text, time};

/// Boxed, like all larger strategies: they would take too much of a test's stack.
pub fn patch() -> BoxedStrategy<UnitPatch> {
    let sizes = (option::of(cpu()), option::of(memory()), option::of(cpu()), option::of(memory()));
    let numbers = vec(option::of(any::<u32>()), 4);
    let admission = (option::of(any::<i32>()), option::of(charged()));
    let rest = (admission, on_demand(), (option::of(shared_by()), option::of(run_as())), setting(text()));
    let patch = (option::of(engine_type()), sizes, numbers, properties(), rest).prop_map(
        |(engine_type, sizes, numbers, properties, ((priority, charge), on_demand, (shared_by, run_as), comment))| {
            UnitPatch {
                engine_type,
                driver_cpu: sizes.0,
                driver_memory: sizes.1,
                executor_cpu: sizes.2,
                executor_memory: sizes.3,
                min_executors: numbers[0],
                max_executors: numbers[1],
                min_engines: numbers[2],
                max_engines: numbers[3],
                properties,
                priority,
                charge,
                shared_by,
                run_as,
                comment,
                ..on_demand
            }
        },
    );
    patch.boxed()
}

fn charged() -> impl Strategy<Value = ChargedExecutors> {
    select(vec![ChargedExecutors::Max, ChargedExecutors::Min])
}

fn shared_by() -> impl Strategy<Value = SharedBy> {
    select(vec![SharedBy::Tenant, SharedBy::Group, SharedBy::User, SharedBy::Session])
}

fn run_as() -> impl Strategy<Value = RunAs> {
    select(vec![RunAs::Service, RunAs::Owner])
}

fn idle_timeout() -> impl Strategy<Value = IdleTimeout> {
    let after = time().prop_map(|time| IdleTimeout::After(time.max(MIN_IDLE_TIMEOUT)));
    prop_oneof![1 => Just(IdleTimeout::Never), 3 => after]
}

/// A patch with the options on demand only; their numbers need not be valid.
fn on_demand() -> impl Strategy<Value = UnitPatch> {
    let options = (setting(any::<bool>()), setting(any::<u32>()), option::of(any::<u32>()), setting(idle_timeout()));
    options.prop_map(|(start_on_demand, sessions_per_engine, spare_engines, idle_timeout)| UnitPatch {
        start_on_demand,
        sessions_per_engine,
        spare_engines,
        idle_timeout,
        ..UnitPatch::default()
    })
}

/// The options on demand of a valid unit, whose spare engines are still to be limited by its other options.
fn on_demand_of_unit() -> impl Strategy<Value = (Option<bool>, Option<u32>, u32, Option<IdleTimeout>)> {
    let sessions = option::of(1..=MAX_SESSIONS_PER_ENGINE);
    (option::of(any::<bool>()), sessions, 0..5_u32, option::of(idle_timeout()))
}

/// A valid unit with these properties.
pub fn with(properties: BTreeMap<String, String>) -> UnitSpec {
    UnitSpec {
        engine_type: EngineType::Datafusion,
        driver_cpu: Cpu::ONE,
        driver_memory: Memory::GIB,
        executor_cpu: Cpu::ONE,
        executor_memory: Memory::GIB,
        min_executors: 0,
        max_executors: 2,
        min_engines: 0,
        max_engines: 10,
        properties,
        secrets: None,
        priority: 0,
        charge: ChargedExecutors::Max,
        start_on_demand: None,
        sessions_per_engine: None,
        spare_engines: 0,
        idle_timeout: None,
        shared_by: SharedBy::default(),
        run_as: RunAs::default(),
        comment: None,
    }
}

/// A unit whose password is the value.
pub fn unit_with_secret(value: &str) -> Object {
    let spec = with([("db.password".to_owned(), value.to_owned())].into());
    Object::ResourceUnit { name: UnitName::new("fresh").unwrap(), spec }
}

pub fn spec() -> impl Strategy<Value = UnitSpec> {
    let numbers = (0..100_u32, 0..100_u32, 0..100_u32, 0..100_u32);
    let sizes = (cpu(), memory(), cpu(), memory());
    let rest = (-100..=100, charged(), on_demand_of_unit(), (shared_by(), run_as()), option::of(text()));
    (engine_type(), sizes, numbers, btree_map(key(), text(), 0..4), rest).prop_map(
        |(
            engine_type,
            sizes,
            (executors, more_executors, engines, more_engines),
            properties,
            (
                priority,
                charge,
                (start_on_demand, sessions_per_engine, spares, idle_timeout),
                (shared_by, run_as),
                comment,
            ),
        )| {
            // Where engines have owners, none is kept without a session.
            let is_owned = shared_by != SharedBy::Tenant;
            let (min_engines, max_engines) = (if is_owned { 0 } else { engines }, engines + more_engines);
            let keeps_spares = !is_owned && start_on_demand != Some(false);
            // A type may refuse the options for executors.
            let has_executors = engine_type.resources().executors != Executors::Refused;
            let fresh = UnitPatch::default().create(&Defaults::default()).unwrap();
            UnitSpec {
                engine_type,
                driver_cpu: sizes.0,
                driver_memory: sizes.1,
                executor_cpu: if has_executors { sizes.2 } else { fresh.executor_cpu },
                executor_memory: if has_executors { sizes.3 } else { fresh.executor_memory },
                min_executors: if has_executors { executors } else { fresh.min_executors },
                max_executors: if has_executors { executors + more_executors } else { fresh.max_executors },
                min_engines,
                max_engines,
                properties,
                secrets: None,
                priority,
                charge: if has_executors { charge } else { fresh.charge },
                start_on_demand,
                sessions_per_engine,
                spare_engines: if keeps_spares { spares.min(max_engines) } else { 0 },
                idle_timeout,
                shared_by,
                run_as: if shared_by.charges_users() { run_as } else { RunAs::Service },
                comment,
            }
        },
    )
}
