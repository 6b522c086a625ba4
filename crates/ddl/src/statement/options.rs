//! Options: `[SET] NAME [=] value, …`.

use std::fmt;

use model::alteration::ObjectKind;
use model::catalog::MAX_LIST;
use model::change::Setting;
use model::error::{ErrorKind, UserError};

use crate::cursor::{Cursor, join_or};
use crate::distance::nearest;
use crate::error::ParseError;
use crate::quote::quoted_string;
use crate::token::TokenKind;

/// The options of one kind of object.
pub(crate) trait Options: Default {
    const KIND: ObjectKind;
    /// In the order in which they are printed and errors list them.
    const NAMES: &'static [&'static str];

    /// Parses the value of an option of [`Options::NAMES`].
    fn read(&mut self, option: &'static str, cursor: &mut Cursor<'_>) -> Result<(), ParseError>;

    /// The named options as text.
    fn printed(&self) -> Vec<String>;
}

/// Parses options separated by commas.
pub(super) fn read_options<P: Options>(cursor: &mut Cursor<'_>, needed: bool) -> Result<P, ParseError> {
    let needed = cursor.eat("SET") || needed;
    let mut options = P::default();
    if !needed && (cursor.peek_word().is_none() || follows_options(cursor)) {
        cursor.could_be("an option");
        return Ok(options);
    }
    let mut named: Vec<&'static str> = Vec::new();
    loop {
        let position = cursor.position();
        let option = read_name::<P>(cursor)?;
        if named.contains(&option) {
            let message = format!("option {option} of a {} specified more than once", P::KIND);
            return Err(ParseError::syntax(position, message).or_hint("Remove one of them."));
        }
        cursor.eat_symbol(&TokenKind::Equals);
        options.read(option, cursor)?;
        named.push(option);
        if cursor.eat_symbol(&TokenKind::Comma) {
            continue;
        }
        if P::NAMES.iter().any(|name| cursor.is(name)) {
            return Err(cursor.unexpected().or_hint("Separate options by commas."));
        }
        return Ok(options);
    }
}

/// Whether what comes next stands after the options.
fn follows_options(cursor: &Cursor<'_>) -> bool {
    cursor.is("WAIT") || cursor.at_in_place()
}

fn read_name<P: Options>(cursor: &mut Cursor<'_>) -> Result<&'static str, ParseError> {
    let word = match cursor.peek_word() {
        Some(word) if !follows_options(cursor) => word,
        _ => return Err(cursor.missing("an option").or_hint(format!("The options are {}.", P::NAMES.join(", ")))),
    };
    if let Some(name) = P::NAMES.iter().find(|name| name.eq_ignore_ascii_case(word)) {
        cursor.advance();
        return Ok(name);
    }
    let shown: String = word.chars().take(64).collect();
    let error = UserError::new(ErrorKind::Syntax, format!("unknown option \"{shown}\" of a {}", P::KIND))
        .detail(format!("The options are {}.", P::NAMES.join(", ")));
    let error = ParseError::at(cursor.position(), error);
    Err(match meant::<P>(word) {
        Some(meant) => error.or_hint(format!("Did you mean {meant}?")),
        None => error,
    })
}

/// What the user may have meant: a similar name, or the names that contain the word.
fn meant<P: Options>(word: &str) -> Option<String> {
    if let Some(name) = nearest(word, P::NAMES.iter().copied().chain(["WAIT", "SET"])) {
        return Some(name.to_owned());
    }
    let word = word.to_ascii_uppercase();
    let longer: Vec<&str> = P::NAMES.iter().copied().filter(|name| word.len() > 2 && name.contains(&word)).collect();
    if longer.is_empty() { None } else { Some(join_or(&longer)) }
}

/// Parses DEFAULT or NULL, or else a value.
pub(super) fn read_setting<T>(
    cursor: &mut Cursor<'_>,
    read: impl FnOnce(&mut Cursor<'_>) -> Result<T, ParseError>,
) -> Result<Setting<T>, ParseError> {
    if cursor.eat("DEFAULT") || cursor.eat("NULL") { Ok(Setting::Reset) } else { read(cursor).map(Setting::Set) }
}

/// Parses a string, DEFAULT or NULL.
pub(super) fn read_text(cursor: &mut Cursor<'_>) -> Result<Setting<String>, ParseError> {
    read_setting(cursor, |cursor| cursor.string("a quoted string"))
}

/// Parses `(item, …)`; `()` is a valid list.
pub(super) fn read_list<T>(
    cursor: &mut Cursor<'_>,
    option: &'static str,
    mut item: impl FnMut(&mut Cursor<'_>) -> Result<T, ParseError>,
) -> Result<Vec<T>, ParseError> {
    if !cursor.eat_symbol(&TokenKind::Open) {
        return Err(cursor.unexpected().or_hint(format!("Write a list in parentheses: {option} ('a', 'b').")));
    }
    let mut items = Vec::new();
    if cursor.eat_symbol(&TokenKind::Close) {
        return Ok(items);
    }
    loop {
        let position = cursor.position();
        items.push(item(cursor)?);
        if items.len() > MAX_LIST {
            let error = UserError::new(ErrorKind::ProgramLimit, format!("{option} has too many names"))
                .detail(format!("The limit is {MAX_LIST}."));
            return Err(ParseError::at(position, error));
        }
        if !cursor.eat_symbol(&TokenKind::Comma) {
            cursor.symbol(&TokenKind::Close)?;
            return Ok(items);
        }
    }
}

/// `NAME ('a', 'b')`
pub(super) fn printed_list<T: AsRef<str>>(option: &str, items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(|item| quoted_string(item.as_ref())).collect();
    format!("{option} ({})", items.join(", "))
}

/// `NAME 'text'` or `NAME DEFAULT`; nothing for an option that is not named.
pub(super) fn printed_text(option: &str, setting: &Setting<String>) -> Option<String> {
    printed_setting(option, setting)
}

/// The same for a value that is printed as a string.
pub(super) fn printed_setting<T: AsRef<str>>(option: &str, setting: &Setting<T>) -> Option<String> {
    match setting {
        Setting::Keep => None,
        Setting::Reset => Some(format!("{option} DEFAULT")),
        Setting::Set(value) => Some(format!("{option} {}", quoted_string(value.as_ref()))),
    }
}

/// The options after a name, on one line.
pub(super) fn write_options(f: &mut fmt::Formatter<'_>, options: &[String]) -> fmt::Result {
    if options.is_empty() { Ok(()) } else { write!(f, " {}", options.join(", ")) }
}
