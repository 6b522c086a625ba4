//! Golden files: `EH_GOLDEN=update cargo test -p orchestrator --test kubernetes` writes them; review the difference before
//! committing it.

use std::fs;
use std::path::Path;

use serde::Serialize;

/// Compares a text with its file.
pub fn text(name: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kubernetes/golden").join(name);
    if std::env::var("EH_GOLDEN").as_deref() == Ok("update") {
        fs::write(&path, found).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    if expected == found {
        return;
    }
    let differs = expected.lines().zip(found.lines()).position(|(expected, found)| expected != found);
    let line = differs.unwrap_or_else(|| expected.lines().count().min(found.lines().count()));
    panic!(
        "{name} differs from the golden file from line {} (EH_GOLDEN=update writes it)\n  file: {:?}\n found: {:?}",
        line + 1,
        expected.lines().nth(line),
        found.lines().nth(line)
    );
}

/// Compares an object with its file, as JSON.
pub fn object(name: &str, found: &impl Serialize) {
    text(name, &format!("{}\n", serde_json::to_string_pretty(found).unwrap()));
}
