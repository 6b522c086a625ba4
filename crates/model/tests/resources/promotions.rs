//! Promotion: every pair of kinds.

use model::error::KIND_MISMATCH;
use model::resource::{Kind, Resource, promote};

use crate::sample::{instances, load, of_kind, queue};

/// The kind of each combination, by the kind of the left resource (rows) and of the right one; `-` is `KIND_MISMATCH`.
const MATRIX: &str = "
                  | Memory            Cpu               Load              LoadInstance      Queue DriverAndExecutor Special
Memory            | Memory            Load              Load              LoadInstance      -     DriverAndExecutor -
Cpu               | Load              Cpu               Load              LoadInstance      -     DriverAndExecutor -
Load              | Load              Load              Load              LoadInstance      -     DriverAndExecutor -
LoadInstance      | LoadInstance      LoadInstance      LoadInstance      LoadInstance      -     DriverAndExecutor -
Queue             | -                 -                 -                 -                 Queue -                 -
DriverAndExecutor | DriverAndExecutor DriverAndExecutor DriverAndExecutor DriverAndExecutor -     DriverAndExecutor -
Special           | -                 -                 -                 -                 -     -                 Special
";

/// The rows and columns of the matrix as (left, right, common kind or `-`).
fn cells() -> Vec<(Kind, Kind, &'static str)> {
    let mut rows = MATRIX.trim_start_matches('\n').lines().map(|line| line.split_once('|').unwrap());
    let columns: Vec<Kind> = rows.next().unwrap().1.split_whitespace().map(|name| name.parse().unwrap()).collect();
    let cells = rows.flat_map(|(left, cells)| {
        let left: Kind = left.trim().parse().unwrap();
        let cells: Vec<&str> = cells.split_whitespace().collect();
        assert_eq!(cells.len(), columns.len());
        columns.iter().zip(cells).map(move |(right, cell)| (left, *right, cell)).collect::<Vec<_>>()
    });
    cells.collect()
}

#[test]
fn every_pair_of_kinds_combines_as_the_matrix_states() {
    let cells = cells();
    assert_eq!(cells.len(), 49);
    for (left, right, expected) in cells {
        let (left, right) = (of_kind(left), of_kind(right));
        match promote(&left, &right) {
            Ok((one, other)) => {
                assert_eq!((one.kind().name(), other.kind().name()), (expected, expected), "{left:?} {right:?}");
                assert!(one.equals(&left).unwrap() && other.equals(&right).unwrap(), "promotion changes no amount");
            }
            Err(error) => {
                assert_eq!(expected, "-", "{left:?} {right:?}");
                assert_eq!((error.sqlstate(), error.error_code()), ("22023", KIND_MISMATCH), "{error}");
            }
        }
    }
}

#[test]
fn missing_components_are_zero_and_executors_take_the_other_s_queue() {
    let spark = of_kind(Kind::DriverAndExecutor);
    let idle = queue("root.a", instances(0, 0, 0));
    for (resource, driver) in [
        (of_kind(Kind::Memory), instances(101, 0, 0)),
        (of_kind(Kind::Cpu), instances(0, 103, 0)),
        (of_kind(Kind::Load), instances(107, 109, 0)),
        (of_kind(Kind::LoadInstance), instances(113, 127, 131)),
    ] {
        let promoted = Resource::DriverAndExecutor { driver, executors: idle.clone() };
        assert_eq!(promote(&resource, &spark).unwrap(), (promoted.clone(), spark.clone()));
        assert_eq!(promote(&spark, &resource).unwrap(), (spark.clone(), promoted));
    }
    let (memory, cpu) = promote(&of_kind(Kind::Memory), &of_kind(Kind::Cpu)).unwrap();
    assert_eq!((memory, cpu), (load(101, 0), load(0, 103)));
}

#[test]
fn resources_of_two_queues_do_not_combine() {
    let two = |name: &str| {
        let executors = queue(name, instances(1, 1, 1));
        [Resource::Queue(executors.clone()), Resource::DriverAndExecutor { driver: instances(1, 1, 1), executors }]
    };
    for (left, right) in two("root.a").iter().zip(&two("root.b")) {
        for error in
            [left.checked_add(right).unwrap_err(), left.equals(right).unwrap_err(), left.any_less(right).unwrap_err()]
        {
            assert_eq!((error.sqlstate(), error.error_code()), ("22023", KIND_MISMATCH));
            assert_eq!(error.message, "resources of queues \"root.a\" and \"root.b\" do not combine");
        }
    }
}
