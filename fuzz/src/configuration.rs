//! The target that reads a configuration file.

use enginehouse::fuzzing::configuration as read;

/// A password in a URL, which nothing may print.
const PASSWORD: &str = "canary-7f3a";

/// A valid configuration is read back from what is printed of it. The password of the database is in no error and no output,
/// whatever follows it.
pub fn configuration(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(first) = read(text) {
        let again = read(&first.whole).expect("what is printed is valid");
        assert_eq!(again, first);
    }
    if text.contains(PASSWORD) {
        return;
    }
    let shown = match read(&format!("[database]\nurl = \"postgres://eh:{PASSWORD}@db1/{text}")) {
        Ok(configuration) => configuration.printed,
        Err(error) => error,
    };
    assert!(!shown.contains(PASSWORD), "{shown}");
}
