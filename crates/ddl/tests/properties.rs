//! Properties of all statements and all texts.
#![allow(clippy::unwrap_used, clippy::panic)]

mod generate;

use std::collections::BTreeMap;

use ddl::{
    SessionStatement, Statement, like_matches, masked_text, near_miss, parse, pins_session, print_create,
    session_statement, sniff,
};
use model::change::{Applied, Change, Object, ObjectPatch, Rules};
use model::error::ErrorKind;
use model::secret::{MASK, SecretKeys};
use proptest::prelude::*;

/// Everything that reads a text, and what must hold of the answers.
fn read(text: &str) -> Result<(), TestCaseError> {
    let ours = sniff(text).is_some();
    pins_session(text);
    if let Some(statement) = session_statement(text) {
        prop_assert!(!ours, "a session statement is no control statement");
        let parts = match statement {
            SessionStatement::Use { database } => vec![database],
            SessionStatement::Set { key, value } => vec![key, value],
            SessionStatement::ShowSetting { key } => vec![key],
            SessionStatement::ListSettings { .. } => vec![],
        };
        for part in parts {
            prop_assert!(text.contains(part));
        }
    }
    let hint = near_miss(text);
    prop_assert!(!ours || hint.is_none());
    match parse(text) {
        Ok(statement) => {
            prop_assert!(ours);
            prop_assert_eq!(parse(&statement.to_string()), Ok(statement));
        }
        Err(error) => {
            let position = error.position;
            prop_assert!(text.is_char_boundary(position.offset));
            let before = text[..position.offset].strip_prefix('\u{feff}').unwrap_or(&text[..position.offset]);
            let line_start = before.rfind('\n').map_or(0, |at| at + 1);
            prop_assert_eq!(position.line, before.matches('\n').count() + 1);
            prop_assert_eq!(position.column, before[line_start..].chars().count() + 1);
            let known = [
                ErrorKind::Syntax,
                ErrorKind::InvalidName,
                ErrorKind::InvalidValue,
                ErrorKind::ProgramLimit,
                ErrorKind::NotSupported,
            ];
            prop_assert!(known.contains(&error.kind()));
            prop_assert!(ours || error.kind() == ErrorKind::Syntax);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_printed_is_read_back_as_the_same_statement(statement in generate::statement()) {
        let text = statement.to_string();
        prop_assert!(sniff(&text).is_some(), "{}", text);
        prop_assert_eq!(parse(&text), Ok(statement), "{}", text);
    }

    #[test]
    fn comments_white_space_and_case_change_nothing(statement in generate::statement(), gap in generate::gap()) {
        let text = statement.to_string();
        // Only blanks outside of quotes may be replaced.
        let mut quote = None;
        let spaced: String = text
            .chars()
            .map(|c| {
                match quote {
                    None if matches!(c, '\'' | '"') => quote = Some(c),
                    Some(open) if c == open => quote = None,
                    _ => {}
                }
                if quote.is_some() { return c.to_string() }
                if c == ' ' { gap.clone() } else { c.to_ascii_lowercase().to_string() }
            })
            .collect();
        prop_assert_eq!(parse(&format!("{gap}{spaced}{gap};{gap}")), Ok(statement), "{}", spaced);
    }

    #[test]
    fn the_masked_text_contains_no_secret_value(statement in generate::statement()) {
        let keys = SecretKeys::default();
        let masked = masked_text(&statement, &keys);
        let parsed = parse(&masked).unwrap();
        let properties = |statement: &Statement| match statement {
            Statement::Change { change: Change::Create { object, .. } | Change::Alter { object, .. }, .. }
            | Statement::Explain { change: Change::Create { object, .. } | Change::Alter { object, .. }, .. } => match object {
                ObjectPatch::ResourceUnit(_, patch) => patch.properties.set.clone(),
                _ => BTreeMap::new(),
            },
            _ => BTreeMap::new(),
        };
        let (before, after) = (properties(&statement), properties(&parsed));
        prop_assert_eq!(before.len(), after.len());
        for (key, value) in before {
            let expected = value.map(|value| if keys.is_secret(&key) { MASK.to_owned() } else { value });
            prop_assert_eq!(&after[&key], &expected);
        }
    }

    #[test]
    fn show_create_makes_the_same_object_again(object in generate::object()) {
        let open = SecretKeys::new(Vec::new());
        let text = print_create(&object, &open);
        let Ok(Statement::Change { change, in_place: false, wait: None }) = parse(&text) else { panic!("{text}") };
        let rules = Rules { secret_keys: open, ..Rules::default() };
        let applied = change.apply(&generate::catalog(), &rules).unwrap();
        let Applied::Object { after: Some(after), .. } = applied else { panic!("{text}") };
        prop_assert_eq!(after, object);
    }

    #[test]
    fn show_create_masks_secrets_and_so_can_not_make_the_object_without_them(value in "[a-z]{12}") {
        let object = generate::unit_with_secret(&value);
        let text = print_create(&object, &SecretKeys::default());
        prop_assert!(!text.contains(&value) && text.contains(MASK), "{}", text);
        let Ok(Statement::Change { change, .. }) = parse(&text) else { panic!("{text}") };
        prop_assert_eq!(change.apply(&generate::catalog(), &Rules::default()).unwrap_err().kind, ErrorKind::InvalidValue);
        let Object::ResourceUnit { .. } = object else { panic!("a unit") };
    }

    #[test]
    fn no_text_makes_anything_panic(text in "\\PC{0,80}") {
        read(&text)?;
    }

    #[test]
    fn no_bytes_make_anything_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
        read(&String::from_utf8_lossy(&bytes))?;
    }

    #[test]
    fn no_mixture_of_our_words_makes_anything_panic(text in generate::word_salad()) {
        read(&text)?;
    }

    #[test]
    fn no_damaged_statement_makes_anything_panic(
        statement in generate::statement(), at in any::<prop::sample::Index>(), piece in "[\\PC]{0,3}", cut in 0_usize..4,
    ) {
        let mut characters: Vec<char> = statement.to_string().chars().collect();
        let at = at.index(characters.len());
        let end = (at + cut).min(characters.len());
        characters.splice(at..end, piece.chars());
        read(&characters.into_iter().collect::<String>())?;
    }

    #[test]
    fn a_name_matches_itself_and_any_text_matches_everything(name in "[a-z][a-z0-9.-]{0,20}", cut in 0_usize..20) {
        let prefix: String = name.chars().take(cut).collect();
        prop_assert!(like_matches(&name, &name));
        prop_assert!(like_matches("%", &name));
        let pattern = format!("{prefix}%");
        prop_assert!(like_matches(&pattern, &name));
    }
}
