//! Amounts in parentheses: `(CPU 18, MEMORY '64G', ENGINES 5, 'nvidia.com/gpu' 2)`.

use model::change::Setting;
use model::quota::{Count, DeclaredAmount};
use model::resource::Component;

use crate::cursor::Cursor;
use crate::error::ParseError;
use crate::quote::quoted_string;
use crate::token::TokenKind;

/// The longest name of a custom amount that an error repeats, in characters.
const MAX_NAME_SHOWN_CHARS: usize = 64;

/// Parses an amount with at least one component: `()` could be read as no limit or as nothing.
pub(super) fn read_amount(cursor: &mut Cursor<'_>, option: &'static str) -> Result<DeclaredAmount, ParseError> {
    if !cursor.eat_symbol(&TokenKind::Open) {
        let hint = format!("Write an amount in parentheses: {option} (CPU 18, MEMORY '64G', ENGINES 5).");
        return Err(cursor.unexpected().or_hint(hint));
    }
    let mut amount = DeclaredAmount::default();
    loop {
        read_component(cursor, &mut amount, option)?;
        if cursor.eat_symbol(&TokenKind::Comma) {
            continue;
        }
        let begins_component = cursor.at_string() || Component::ALL.iter().any(|known| cursor.is(known.keyword()));
        return match cursor.symbol(&TokenKind::Close) {
            Err(error) if begins_component => Err(error.or_hint("Separate the components by commas.")),
            closed => closed.map(|()| amount),
        };
    }
}

fn read_component(
    cursor: &mut Cursor<'_>,
    amount: &mut DeclaredAmount,
    option: &'static str,
) -> Result<(), ParseError> {
    let position = cursor.position();
    let repeated = if cursor.eat("CPU") {
        cursor.eat_symbol(&TokenKind::Equals);
        amount.cpu.replace(cursor.value("CPU", "an amount of CPU such as 18, 0.5 or 500m")?).map(|_| "CPU".to_owned())
    } else if cursor.eat("MEMORY") {
        cursor.eat_symbol(&TokenKind::Equals);
        amount.memory.replace(cursor.value("MEMORY", "an amount of memory such as '64G'")?).map(|_| "MEMORY".to_owned())
    } else if cursor.eat("ENGINES") {
        cursor.eat_symbol(&TokenKind::Equals);
        amount.engines.replace(cursor.value("ENGINES", "a whole number")?).map(|_| "ENGINES".to_owned())
    } else {
        let name = read_custom_name(cursor, amount, option)?;
        cursor.eat_symbol(&TokenKind::Equals);
        let count: Count = cursor.value("custom amount", "a whole number")?;
        let shown = name.chars().take(MAX_NAME_SHOWN_CHARS).collect();
        amount.custom.insert(name, count).map(|_| shown)
    };
    match repeated {
        None => Ok(()),
        Some(name) => Err(ParseError::syntax(position, format!("\"{name}\" specified more than once in {option}"))
            .or_hint("Remove one of them.")),
    }
}

fn read_custom_name(
    cursor: &mut Cursor<'_>,
    amount: &DeclaredAmount,
    option: &'static str,
) -> Result<String, ParseError> {
    let name = cursor.string("the quoted name of a custom amount");
    name.map_err(
        |error| {
            if amount.is_empty() { error.or_hint(format!("Use {option} DEFAULT to reset it.")) } else { error }
        },
    )
}

/// `(CPU 18, MEMORY '64G')`
pub(super) fn printed_amount(amount: &DeclaredAmount) -> String {
    let mut parts = Vec::new();
    parts.extend(amount.cpu.map(|cpu| format!("CPU {}", printed_quantity(&cpu.to_string()))));
    parts.extend(amount.memory.map(|memory| format!("MEMORY {}", printed_quantity(&memory.to_string()))));
    parts.extend(amount.engines.map(|engines| format!("ENGINES {engines}")));
    parts.extend(amount.custom.iter().map(|(name, count)| format!("{} {count}", quoted_string(name))));
    format!("({})", parts.join(", "))
}

/// `NAME (CPU 18)` or `NAME DEFAULT`; nothing for an option that is not named.
pub(super) fn printed_amount_setting(option: &str, setting: &Setting<DeclaredAmount>) -> Option<String> {
    match setting {
        Setting::Keep => None,
        Setting::Reset => Some(format!("{option} DEFAULT")),
        Setting::Set(amount) => Some(format!("{option} {}", printed_amount(amount))),
    }
}

/// `2`, but `'500m'` and `'1G'`.
pub(super) fn printed_quantity(text: &str) -> String {
    if text.bytes().all(|b| b.is_ascii_digit()) { text.to_owned() } else { quoted_string(text) }
}
