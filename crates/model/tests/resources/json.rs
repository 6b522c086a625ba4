//! The JSON form: golden files of what is printed, of what is read, and of what is refused.
//!
//! In `<kind>.jsonl` the first line is the printed form, and every further line is read as the same value. `refused.txt` has, after
//! each input, the error: `EH_GOLDEN=update cargo test -p model --test resources` writes the errors; review the difference
//! before committing it.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use model::resource::{Kind, Resource};

use crate::sample::{GIB, instances, queue, read, special};

fn path(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests/resources/golden", name].iter().collect()
}

/// The value of the golden file of each kind.
fn value(kind: Kind) -> Resource {
    match kind {
        Kind::Memory => Resource::Memory { memory: GIB },
        Kind::Cpu => Resource::Cpu { cpu_m: 500 },
        Kind::Load => Resource::Load { memory: 3 * GIB / 2, cpu_m: 2_000 },
        Kind::LoadInstance => Resource::LoadInstance(instances(GIB, 500, 1)),
        Kind::Queue => Resource::Queue(queue("root.a", instances(8 * GIB, 4_000, 2))),
        Kind::DriverAndExecutor => Resource::DriverAndExecutor {
            driver: instances(GIB, 1_000, 1),
            executors: queue("root.a", instances(4 * GIB, 4_000, 2)),
        },
        Kind::Special => special(&[("nvidia.com/gpu", 2), ("amd.com/gpu", 1)]),
    }
}

#[test]
fn every_accepted_form_is_the_same_value_and_is_printed_in_one_form() {
    for kind in Kind::ALL {
        let name = format!("{kind}.jsonl");
        let text = fs::read_to_string(path(&name)).unwrap();
        let (printed, aliases) = text.split_once('\n').unwrap();
        assert_eq!(value(kind).to_json().unwrap(), printed, "{name}");
        assert_eq!(read(printed), value(kind), "{name}");
        assert!(aliases.lines().count() >= 2, "{name} has too few accepted forms");
        for line in aliases.lines() {
            assert_eq!(read(line), value(kind), "{name}: {line}");
        }
    }
}

#[test]
fn amounts_are_read_exactly_and_rounded_down_to_bytes() {
    for (text, bytes) in [
        ("1G", GIB),
        ("1.0 GB", GIB),
        ("1gib", GIB),
        ("1024M", GIB),
        ("0.1G", 107_374_182),
        ("0.000001K", 0),
        ("1.999999B", 1),
        ("9007199254740992B", 1 << 53),
        ("8192T", 1 << 53),
        ("0B", 0),
    ] {
        let read = read(&format!(r#"{{"type":"Memory","memory":"{text}"}}"#));
        assert_eq!(read, Resource::Memory { memory: bytes }, "{text}");
    }
    for (cores, cpu_m) in [
        ("0.5", 500),
        ("2", 2_000),
        ("0.001", 1),
        ("1.001", 1_001),
        ("1.250000", 1_250),
        ("\"500m\"", 500),
        ("\"0.5\"", 500),
    ] {
        assert_eq!(read(&format!(r#"{{"type":"Cpu","cpu":{cores}}}"#)), Resource::Cpu { cpu_m }, "{cores}");
    }
}

#[test]
fn the_name_of_a_queue_has_at_most_255_bytes() {
    let of = |bytes: usize| {
        let name = "q".repeat(bytes);
        Resource::from_json(&format!(r#"{{"type":"Queue","queue":"{name}","memory":1,"cpu_m":1,"instances":1}}"#))
    };
    assert!(of(255).is_ok());
    assert_eq!(of(256).unwrap_err().sqlstate(), "22023");
}

#[test]
fn refused_json_has_a_golden_error() {
    let file = fs::read_to_string(path("refused.txt")).unwrap();
    let mut found = String::new();
    for input in file.lines().filter(|line| !line.is_empty() && !line.starts_with(' ')) {
        let error = Resource::from_json(input).map_or_else(|error| error, |value| panic!("{input} is {value:?}"));
        let text = error.text().replace('\n', "\n  ");
        writeln!(found, "{input}\n  {} {}: {text}\n", error.sqlstate(), error.error_code()).unwrap();
    }
    if std::env::var("EH_GOLDEN").as_deref() == Ok("update") {
        fs::write(path("refused.txt"), &found).unwrap();
    }
    let expected = fs::read_to_string(path("refused.txt")).unwrap();
    let differs = expected.lines().zip(found.lines()).find(|(expected, found)| expected != found);
    assert!(expected == found, "refused.txt differs (EH_GOLDEN=update writes it): {differs:#?}");
    assert!(found.lines().count() > 60, "refused.txt has too few inputs");
}
