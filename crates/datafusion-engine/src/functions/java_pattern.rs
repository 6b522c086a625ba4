//! Translation of date patterns from `java.time.format.DateTimeFormatter`, which Spark uses, to `strftime`.

use datafusion::common::Result;
use datafusion::error::DataFusionError;
use model::error::{ErrorKind, UserError};

/// The pattern for `to_char` and `to_timestamp`, or an error that names the letter without an equivalent.
pub fn strftime(pattern: &str) -> Result<String> {
    let mut result = String::new();
    let mut chars = pattern.chars().peekable();
    while let Some(letter) = chars.next() {
        if letter == '\'' {
            if chars.next_if_eq(&'\'').is_some() {
                result.push('\'');
                continue;
            }
            while let Some(quoted) = chars.next() {
                if quoted == '\'' {
                    if chars.next_if_eq(&'\'').is_none() {
                        break;
                    }
                    result.push('\'');
                } else {
                    literal(quoted, &mut result);
                }
            }
            continue;
        }
        if !letter.is_ascii_alphabetic() {
            if matches!(letter, '[' | ']' | '{' | '}' | '#') {
                return Err(unknown(letter, 1));
            }
            literal(letter, &mut result);
            continue;
        }
        let mut count = 1;
        while chars.next_if_eq(&letter).is_some() {
            count += 1;
        }
        result.push_str(directive(letter, count).ok_or_else(|| unknown(letter, count))?);
    }
    Ok(result)
}

fn literal(letter: char, result: &mut String) {
    if letter == '%' {
        result.push('%');
    }
    result.push(letter);
}

const fn directive(letter: char, count: usize) -> Option<&'static str> {
    Some(match (letter, count) {
        ('y' | 'u', 2) => "%y",
        ('y' | 'u', 1 | 3 | 4) => "%Y",
        ('M' | 'L', 1) => "%-m",
        ('M' | 'L', 2) => "%m",
        ('M' | 'L', 3) => "%b",
        ('M' | 'L', 4) => "%B",
        ('d', 1) => "%-d",
        ('d', 2) => "%d",
        ('D', 1) => "%-j",
        ('D', 3) => "%j",
        ('E', 1..=3) => "%a",
        ('E', 4) => "%A",
        ('H', 1) => "%-H",
        ('H', 2) => "%H",
        ('h', 1) => "%-I",
        ('h', 2) => "%I",
        ('m', 1) => "%-M",
        ('m', 2) => "%M",
        ('s', 1) => "%-S",
        ('s', 2) => "%S",
        ('S', 3) => "%3f",
        ('S', 6) => "%6f",
        ('S', 9) => "%9f",
        ('a', 1) => "%p",
        ('Z', 1..=3) => "%z",
        ('X' | 'x', 3) => "%:z",
        _ => return None,
    })
}

fn unknown(letter: char, count: usize) -> DataFusionError {
    let pattern: String = std::iter::repeat_n(letter, count).collect();
    let error = UserError::new(ErrorKind::NotSupported, format!("date pattern \"{pattern}\" is not supported"))
        .detail("Supported are y, M, d, D, E, H, h, m, s, S (3, 6 or 9), a, Z, XXX and quoted text.");
    DataFusionError::External(Box::new(error))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn java_letters_become_strftime_directives() {
        for (java, expected) in [
            ("yyyy-MM-dd", "%Y-%m-%d"),
            ("dd.MM.yy HH:mm:ss.SSS", "%d.%m.%y %H:%M:%S.%3f"),
            ("yyyy'T'HH 'o''clock' 100%", "%YT%H o'clock 100%%"),
            ("EEEE, d MMMM", "%A, %-d %B"),
        ] {
            assert_eq!(strftime(java).unwrap(), expected, "{java}");
        }
        assert!(strftime("QQQ").unwrap_err().to_string().contains("QQQ"));
    }
}
