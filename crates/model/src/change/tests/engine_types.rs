//! The engine type of a unit: types without executors, and types that the installation cannot launch.

use super::*;
use crate::engine_type::EngineType;

fn of_type(engine_type: EngineType) -> UnitPatch {
    UnitPatch { engine_type: Some(engine_type), ..UnitPatch::default() }
}

fn refusing() -> Rules {
    let error = UserError::new(ErrorKind::WrongState, "engines of type 'hiveserver2' are not configured");
    let defaults = Defaults { refused_types: [(EngineType::HiveServer2, error)].into(), ..Defaults::default() };
    Rules { defaults, ..Rules::default() }
}

#[test]
fn a_type_without_executors_refuses_their_options() {
    let created = applied(&founding(), &create(unit("uc_2", of_type(EngineType::HiveServer2))));
    let memory = Some("2G".parse().unwrap());
    for (option, patch) in [
        ("MAX_EXECUTORS", UnitPatch { max_executors: Some(0), ..UnitPatch::default() }),
        ("EXECUTOR_MEMORY", UnitPatch { executor_memory: memory, ..UnitPatch::default() }),
        ("CHARGE", UnitPatch { charge: Some(crate::catalog::ChargedExecutors::Min), ..UnitPatch::default() }),
    ] {
        let of_type = UnitPatch { engine_type: Some(EngineType::HiveServer2), ..patch.clone() };
        for change in [create(unit("uc_3", of_type.clone())), alter(unit("uc_1", of_type)), alter(unit("uc_2", patch))]
        {
            let error = change.apply(&created, &Rules::default()).unwrap_err();
            assert_eq!(error.sqlstate(), "22023");
            assert!(error.message.starts_with(option) && error.detail.is_some() && error.hint.is_some(), "{error}");
        }
    }
    // What has no executors is charged its driver, with the agent in its container.
    let spec = created.unit(&unit_name("uc_2")).unwrap();
    let charge = crate::charge::Charge::of_unit(spec, crate::instance::InstanceKind::Pod);
    assert_eq!(charge.to_string(), "1 CPU, 1280 MiB, 1 engine");
    assert_eq!((charge.driver.agent, charge.executors), (None, None));
}

#[test]
fn a_type_that_the_installation_cannot_launch_is_refused_where_it_is_chosen() {
    let before = applied(&founding(), &create(unit("uc_2", of_type(EngineType::HiveServer2))));
    let rules = refusing();
    for change in
        [create(unit("uc_3", of_type(EngineType::HiveServer2))), alter(unit("uc_1", of_type(EngineType::HiveServer2)))]
    {
        let error = change.apply(&before, &rules).unwrap_err();
        assert_eq!((error.sqlstate(), error.message.contains("are not configured")), ("55000", true), "{error}");
    }
    let defaults = Defaults { engine_type: EngineType::HiveServer2, ..rules.defaults.clone() };
    let by_default = Rules { defaults, ..Rules::default() };
    assert!(create(unit("uc_3", UnitPatch::default())).apply(&before, &by_default).is_err());
    // A unit from a time at which it could: everything else can be altered, its type too.
    for patch in [minimum(0, 1), of_type(EngineType::Spark)] {
        assert!(alter(unit("uc_2", patch)).apply(&before, &rules).is_ok());
    }
}
