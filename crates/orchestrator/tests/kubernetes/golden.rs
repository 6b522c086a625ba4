//! Texts that are compared with files: `EH_GOLDEN=update cargo test -p orchestrator --test kubernetes` writes them anew;
//! look at the difference before committing it.

use std::fs;
use std::path::Path;

use serde::Serialize;

/// Compares a text with its file.
pub fn text(name: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kubernetes/golden").join(name);
    if std::env::var("EH_GOLDEN").as_deref() == Ok("update") {
        fs::write(&path, found).unwrap();
    }
    let wanted = fs::read_to_string(&path).unwrap_or_default();
    if wanted == found {
        return;
    }
    let differs = wanted.lines().zip(found.lines()).position(|(wanted, found)| wanted != found);
    let line = differs.unwrap_or_else(|| wanted.lines().count().min(found.lines().count()));
    panic!(
        "{name} is not what the golden file says, from line {} on (EH_GOLDEN=update after a look)\n  file: {:?}\n found: {:?}",
        line + 1,
        wanted.lines().nth(line),
        found.lines().nth(line)
    );
}

/// Compares an object with its file, as JSON.
pub fn object(name: &str, found: &impl Serialize) {
    text(name, &format!("{}\n", serde_json::to_string_pretty(found).unwrap()));
}
