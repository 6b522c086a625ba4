//! Replays the corpus: every input that a fuzzer has found worth keeping, the failed ones included.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::io::{Write as _, stderr};
use std::path::{Path, PathBuf};
use std::{fs, panic};

use parking_lot::Mutex;

/// The input that is being read.
static INPUT: Mutex<PathBuf> = Mutex::new(PathBuf::new());

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn names_in(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

/// Targets of connections end the process with the first panic, so what the test has printed would be lost: the input and the
/// panic are written at once.
#[test]
fn every_input_of_the_corpus_is_read_or_refused() {
    panic::set_hook(Box::new(|report| {
        let _ = stderr().write_all(format!("{}: {report}\n", INPUT.lock().display()).as_bytes());
    }));
    for (target, _) in fuzz::TARGETS {
        let mut inputs: Vec<PathBuf> =
            fs::read_dir(folder("corpus").join(target)).unwrap().map(|entry| entry.unwrap().path()).collect();
        inputs.sort();
        assert!(!inputs.is_empty(), "{target} has no corpus");
        println!("{target}: {} inputs", inputs.len());
        for input in inputs {
            let data = fs::read(&input).unwrap();
            *INPUT.lock() = input;
            fuzz::run(target, &data);
        }
    }
}

#[test]
fn every_target_is_built_and_has_a_corpus() {
    let listed: BTreeSet<String> = fuzz::TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(listed.len(), fuzz::TARGETS.len());
    assert_eq!(names_in(&folder("fuzz_targets")), listed);
    assert_eq!(names_in(&folder("corpus")), listed);
    let manifest = fs::read_to_string(folder("Cargo.toml")).unwrap();
    for name in &listed {
        assert!(manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")), "{name} is not built");
        let source = fs::read_to_string(folder("fuzz_targets").join(format!("{name}.rs"))).unwrap();
        assert!(source.contains(&format!("fuzz::run(\"{name}\", data)")), "{name} runs another target");
    }
}
