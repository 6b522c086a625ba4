//! Escape sequences of string literals, as in Spark.
//!
//! The rules are those of Spark 3.5's `unescapeSQLString`, with one difference: a doubled quote is one quote, as in
//! DataFusion. Spark reads two strings and concatenates them, which leaves no quote.

/// The value of a string literal. `raw` is the text between its quotes, `quote` the quote character.
pub fn unescape(raw: &str, quote: char) -> String {
    let mut value = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = rest.find(['\\', quote]) {
        value.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix(quote) {
            value.push(quote);
            // A pair of quotes: a single one would have ended the string.
            rest = after.strip_prefix(quote).unwrap_or(after);
        } else {
            rest = escape(&rest[1..], &mut value);
        }
    }
    value.push_str(rest);
    value
}

/// Appends the value of an escape sequence and returns the rest after it. `rest` begins after the backslash.
fn escape<'a>(rest: &'a str, value: &mut String) -> &'a str {
    if let Some((unit, after)) = number(rest, "u", 4, 16) {
        return utf16(unit, after, value);
    }
    if let Some((code, after)) = number(rest, "U", 8, 16) {
        value.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
        return after;
    }
    if rest.starts_with(['0', '1'])
        && let Some((code, after)) = number(rest, "", 3, 8)
    {
        value.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
        return after;
    }
    let mut chars = rest.chars();
    match chars.next() {
        None => value.push('\\'),
        Some('0') => value.push('\0'),
        Some('b') => value.push('\u{8}'),
        Some('n') => value.push('\n'),
        Some('r') => value.push('\r'),
        Some('t') => value.push('\t'),
        Some('Z') => value.push('\u{1a}'),
        // The backslash is kept for LIKE, which interprets it.
        Some(wildcard @ ('%' | '_')) => value.extend(['\\', wildcard]),
        Some(other) => value.push(other),
    }
    chars.as_str()
}

/// A number of exactly `digits` digits after a prefix, and the rest after it.
fn number<'a>(rest: &'a str, prefix: &str, digits: usize, radix: u32) -> Option<(u32, &'a str)> {
    let (number, after) = rest.strip_prefix(prefix)?.split_at_checked(digits)?;
    if !number.chars().all(|digit| digit.is_digit(radix)) {
        return None;
    }
    Some((u32::from_str_radix(number, radix).ok()?, after))
}

/// One UTF-16 code unit, which may form a surrogate pair with the next one. An unpaired surrogate is U+FFFD.
fn utf16<'a>(unit: u32, after: &'a str, value: &mut String) -> &'a str {
    if (0xD800..0xDC00).contains(&unit)
        && let Some((low @ 0xDC00..0xE000, end)) = after.strip_prefix('\\').and_then(|rest| number(rest, "u", 4, 16))
    {
        let code = 0x1_0000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
        value.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
        return end;
    }
    value.push(char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER));
    after
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_have_the_escapes_of_spark() {
        for (raw, expected) in [
            ("plain", "plain"),
            ("", ""),
            (r"it\'s", "it's"),
            (r#"say \"x\""#, "say \"x\""),
            ("it''s", "it's"),
            ("''''", "''"),
            (r"\'''", "''"),
            (r"a\\b", r"a\b"),
            (r"a\\", r"a\"),
            (r"\\\\", r"\\"),
            (r"\\n", r"\n"),
            (r"\0\b\n\r\t\Z", "\0\u{8}\n\r\t\u{1a}"),
            (r"100\%", r"100\%"),
            (r"a\_b", r"a\_b"),
            (r"\\%", r"\%"),
            (r"\x\a\f\é\z", "xaféz"),
            (r"\u0041\u00e9\u4e2d", "Aé中"),
            (r"\u00E9x", "éx"),
            (r"\uD83D\uDE00", "😀"),
            (r"\uD83Dx", "\u{fffd}x"),
            (r"\uDE00", "\u{fffd}"),
            (r"\u41", "u41"),
            (r"\u00g1", "u00g1"),
            (r"\u+123", "u+123"),
            (r"\U0001F600", "😀"),
            (r"\UFFFFFFFF", "\u{fffd}"),
            (r"\U123", "U123"),
            (r"\101\060", "A0"),
            (r"\177", "\u{7f}"),
            (r"\1", "1"),
            (r"\200", "200"),
            (r"\08", "\u{0}8"),
            (r"\018", "\u{0}18"),
            ("\\\n", "\n"),
            (r#"say "x""#, r#"say "x""#),
            ("日\\'本", "日'本"),
        ] {
            assert_eq!(unescape(raw, '\''), expected, "{raw}");
        }
        assert_eq!(unescape(r#"it's ""x"""#, '"'), r#"it's "x""#);
    }
}
