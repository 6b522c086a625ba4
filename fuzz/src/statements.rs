//! The target that reads statements of the control language.

use ddl::{SessionStatement, masked_text, near_miss, parse, pins_session, session_statement, sniff};
use model::secret::SecretKeys;

/// A statement is read back from what is printed of it, and an error stands at a character of the text.
pub fn sniff_and_parse(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let is_ours = sniff(text).is_some();
    pins_session(text);
    if let Some(statement) = session_statement(text) {
        assert!(!is_ours, "a session statement is no control statement");
        if let SessionStatement::Set { key, value } = statement {
            assert!(text.contains(key) && text.contains(value));
        }
    }
    assert!(!is_ours || near_miss(text).is_none());
    match parse(text) {
        Ok(statement) => {
            assert!(is_ours);
            let printed = statement.to_string();
            assert_eq!(parse(&printed).as_ref(), Ok(&statement), "{printed}");
            let masked = masked_text(&statement, &SecretKeys::default());
            assert!(sniff(&masked).is_some(), "{masked}");
        }
        Err(error) => assert!(text.is_char_boundary(error.position.offset), "{error:?}"),
    }
}
