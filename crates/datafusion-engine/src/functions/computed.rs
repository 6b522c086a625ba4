//! Functions that neither DataFusion nor `datafusion-spark` provides.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::error::DataFusionError;
use datafusion::functions::datetime;
use datafusion::logical_expr::ScalarUDF;
use model::error::{ErrorKind, UserError};
use regex_automata::meta::Regex;

use super::lenient::Lenient;
use super::rows::{ArgumentType, Cell, Row, function, item};
use super::{java_pattern, json_path};
use crate::rows::text::texts;

/// Spark's cast of text to an integer: blanks are ignored, a fraction is truncated.
pub fn whole_number() -> ScalarUDF {
    function("whole_number", &[ArgumentType::Text], 1, DataType::Int64, |row| {
        let text = row.text(0).trim();
        if let Ok(number) = text.parse::<i64>() {
            return Ok(Some(Cell::Long(number)));
        }
        let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'+' | b'-'));
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let cut = is_plain
            && fraction.bytes().all(|byte| byte.is_ascii_digit())
            && !(whole.is_empty() && fraction.is_empty());
        let whole = if matches!(whole, "" | "-" | "+") { "0" } else { whole };
        Ok(whole.parse().ok().filter(|_| cut).map(Cell::Long))
    })
}

/// A timestamp as text, `yyyy-MM-dd HH:mm:ss[.ffffff]`.
pub fn timestamp_text() -> ScalarUDF {
    function("timestamp_text", &[ArgumentType::Any], 1, DataType::Utf8, |row| {
        let (array, at) = row.at(0);
        Ok(texts(&array.slice(at, 1))?.pop().map(Cell::Text))
    })
}

/// All functions of this module that have a name in SQL.
pub fn functions() -> Vec<Arc<ScalarUDF>> {
    use ArgumentType::{Any, Date, Double, Long, Text, Timestamp};
    let list = DataType::List(item());
    let functions = [
        function("java_pattern", &[Text], 1, DataType::Utf8, |row| {
            java_pattern::strftime(row.text(0)).map(|text| Some(Cell::Text(text)))
        }),
        function("get_json_object", &[Text, Text], 2, DataType::Utf8, |row| {
            Ok(json_path::get(row.text(0), row.text(1)).map(Cell::Text))
        }),
        function("split", &[Text, Text, Long], 2, list.clone(), split),
        function("regexp_extract", &[Text, Text, Long], 2, DataType::Utf8, |row| {
            let (regex, group) = (row.regex(1)?, row.long_or(2, 1));
            let group = group_of(&regex, group)?;
            let text = row.text(0);
            let mut captures = regex.create_captures();
            regex.captures(text, &mut captures);
            let found = captures.get_group(group).map(|span| text[span.range()].to_owned());
            Ok(Some(Cell::Text(found.unwrap_or_default())))
        }),
        function("regexp_extract_all", &[Text, Text, Long], 2, list.clone(), |row| {
            let (regex, group) = (row.regex(1)?, row.long_or(2, 1));
            let group = group_of(&regex, group)?;
            let text = row.text(0);
            let found = regex.captures_iter(text);
            let found = found.map(|captures| {
                captures.get_group(group).map(|span| text[span.range()].to_owned()).unwrap_or_default()
            });
            Ok(Some(Cell::Texts(found.collect())))
        }),
        function("locate_from", &[Text, Text, Long], 3, DataType::Int32, |row| {
            let (part, text, from) = (row.text(0), row.text(1), row.long(2));
            let Some(skipped) = usize::try_from(from).ok().and_then(|from| from.checked_sub(1)) else {
                return Ok(Some(Cell::Int(0)));
            };
            let Some((start, _)) = text.char_indices().chain([(text.len(), ' ')]).nth(skipped) else {
                return Ok(Some(Cell::Int(0)));
            };
            let found = text[start..].find(part).map(|at| text[..start + at].chars().count() + 1);
            Ok(Some(Cell::Int(found.unwrap_or_default() as i32)))
        }),
        function("substring_index", &[Text, Text, Long], 3, DataType::Utf8, |row| {
            Ok(Some(Cell::Text(substring_index(row.text(0), row.text(1), row.long(2)).to_owned())))
        }),
        function("months_between", &[Timestamp, Timestamp, Any], 2, DataType::Float64, |row| {
            Ok(Some(Cell::Double(months_between(row.micros(0), row.micros(1)))))
        }),
        function("format_number", &[Double, Long], 2, DataType::Utf8, |row| {
            let places = row.long(1);
            Ok((0..=100).contains(&places).then(|| Cell::Text(format_number(row.double(0), places as usize))))
        }),
        function("dayofweek_number", &[Date], 1, DataType::Int32, |row| {
            // 1970-01-01 was a Thursday; Sunday is 1.
            Ok(Some(Cell::Int((row.days(0).rem_euclid(7) + 4) % 7 + 1)))
        }),
        function("conv", &[Text, Long, Long], 3, DataType::Utf8, |row| {
            Ok(conv(row.text(0), row.long(1), row.long(2)).map(Cell::Text))
        }),
        function("to_json", &[Any], 1, DataType::Utf8, |row| {
            let (array, at) = row.at(0);
            Ok(texts(&array.slice(at, 1))?.pop().map(Cell::Text))
        }),
    ];
    let lenient = [datetime::to_date(), datetime::to_timestamp_micros(&ConfigOptions::default())];
    functions.into_iter().chain(lenient.into_iter().map(Lenient::wrap)).map(Arc::new).collect()
}

fn group_of(regex: &Regex, group: i64) -> Result<usize> {
    let groups = regex.group_info().group_len(regex_automata::PatternID::ZERO).saturating_sub(1);
    usize::try_from(group).ok().filter(|group| *group <= groups).ok_or_else(|| {
        let error = UserError::new(ErrorKind::InvalidValue, format!("regular expression has no group {group}"))
            .detail(format!("It has {groups}."));
        DataFusionError::External(Box::new(error.with_sqlstate("2202E")))
    })
}

fn split(row: &mut Row<'_>) -> Result<Option<Cell>> {
    let (regex, limit) = (row.regex(1)?, row.long_or(2, -1));
    let text = row.text(0);
    let most = usize::try_from(limit).ok().filter(|limit| *limit > 0).unwrap_or(usize::MAX);
    let (mut parts, mut from) = (Vec::new(), 0);
    for found in regex.find_iter(text) {
        if parts.len() + 1 >= most {
            break;
        }
        // An empty match splits between characters, not before the first or after the last.
        if found.is_empty() && (found.start() == 0 || found.start() == text.len()) {
            continue;
        }
        parts.push(text[from..found.start()].to_owned());
        from = found.end();
    }
    parts.push(text[from..].to_owned());
    Ok(Some(Cell::Texts(parts)))
}

fn substring_index<'a>(text: &'a str, delimiter: &str, count: i64) -> &'a str {
    if delimiter.is_empty() || count == 0 {
        return "";
    }
    let nth = usize::try_from(count.unsigned_abs() - 1).unwrap_or(usize::MAX);
    if count > 0 {
        text.match_indices(delimiter).nth(nth).map_or(text, |(at, _)| &text[..at])
    } else {
        text.rmatch_indices(delimiter).nth(nth).map_or(text, |(at, _)| &text[at + delimiter.len()..])
    }
}

const MICROS_OF_DAY: i64 = 86_400_000_000;

/// Year, month, day of a day since 1970-01-01, in the proleptic Gregorian calendar.
const fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + if month <= 2 { 1 } else { 0 }, month, day)
}

const fn days_of_month(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Whole months if both are the same day of the month or both the last one; otherwise the remaining days are counted as
/// 31sts of a month, rounded to eight decimal places.
fn months_between(later: i64, earlier: i64) -> f64 {
    let ((y1, m1, d1), (y2, m2, d2)) =
        (civil(later.div_euclid(MICROS_OF_DAY)), civil(earlier.div_euclid(MICROS_OF_DAY)));
    let months = ((y1 - y2) * 12 + m1 - m2) as f64;
    if d1 == d2 || (d1 == days_of_month(y1, m1) && d2 == days_of_month(y2, m2)) {
        return months;
    }
    let seconds = (later.rem_euclid(MICROS_OF_DAY) - earlier.rem_euclid(MICROS_OF_DAY)) / 1_000_000;
    let rest = ((d1 - d2) * 86_400 + seconds) as f64 / (31.0 * 86_400.0);
    ((months + rest) * 1e8).round() / 1e8
}

fn format_number(value: f64, places: usize) -> String {
    let text = format!("{value:.places$}");
    let (sign, digits) = text.strip_prefix('-').map_or(("", text.as_str()), |digits| ("-", digits));
    let (whole, fraction) = digits.split_once('.').map_or((digits, None), |(whole, fraction)| (whole, Some(fraction)));
    let mut grouped = String::from(sign);
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    fraction.map_or(grouped.clone(), |fraction| format!("{grouped}.{fraction}"))
}

fn conv(text: &str, from: i64, to: i64) -> Option<String> {
    let base = u32::try_from(from).ok().filter(|base| (2..=36).contains(base))?;
    let target = Some(to.unsigned_abs()).filter(|base| (2..=36).contains(base))?;
    let text = text.trim();
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let mut number = 0_u64;
    for digit in digits.chars().map_while(|c| c.to_digit(base)) {
        number = number.saturating_mul(base.into()).saturating_add(digit.into());
    }
    if digits.is_empty() {
        return None;
    }
    let mut number = if negative { number.wrapping_neg() } else { number };
    let minus = to < 0 && (number as i64) < 0;
    if minus {
        number = number.wrapping_neg();
    }
    let mut reversed = Vec::new();
    loop {
        reversed.push(char::from_digit((number % target) as u32, target as u32)?.to_ascii_uppercase());
        number /= target;
        if number == 0 {
            break;
        }
    }
    if minus {
        reversed.push('-');
    }
    Some(reversed.into_iter().rev().collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn months_between_counts_days_in_31sts() {
        let day = |days: i64| days * MICROS_OF_DAY;
        // 2020-03-31, 2020-02-29: the last days of their months.
        assert!((months_between(day(18_352), day(18_321)) - 1.0).abs() < 1e-12);
        assert!((months_between(day(18_353), day(18_321)) - 1.096_774_19).abs() < 1e-12);
        assert_eq!(civil(18_321), (2020, 2, 29));
        assert_eq!(civil(-1), (1969, 12, 31));
    }

    #[test]
    fn numbers_are_grouped_and_converted() {
        assert_eq!(format_number(-1_234_567.891, 2), "-1,234,567.89");
        assert_eq!(format_number(12.0, 0), "12");
        assert_eq!(conv("ff", 16, 10).unwrap(), "255");
        assert_eq!(conv("-10", 10, -16).unwrap(), "-A");
        assert_eq!(substring_index("a.b.c", ".", -2), "b.c");
    }
}
