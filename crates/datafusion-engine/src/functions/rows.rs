//! Functions that neither DataFusion nor `datafusion-spark` has, computed row by row.
//!
//! Arguments are converted to the types that a function declares. The result is NULL where an argument is NULL, and where
//! the function gives nothing.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::array::types::{Date32Type, Float64Type, Int64Type, TimestampMicrosecondType};
use datafusion::arrow::array::{
    Array, ArrayRef, Float64Array, Int32Array, Int64Array, ListBuilder, StringArray, StringBuilder,
};
use datafusion::arrow::datatypes::{DataType, Field, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{Result, plan_err};
use datafusion::error::DataFusionError;
use datafusion::functions::datetime;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use datafusion::scalar::ScalarValue;
use model::error::{ErrorKind, UserError};
use regex_automata::meta::Regex;

use super::{java_pattern, json_path};
use crate::rows::text::texts;

/// A type that a function takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Text.
    Text,
    /// A whole number.
    Long,
    /// A double.
    Double,
    /// A date.
    Date,
    /// A timestamp in microseconds.
    Timestamp,
    /// Anything.
    Any,
}

impl Kind {
    fn data_type(self, given: &DataType) -> DataType {
        match self {
            Self::Text => DataType::Utf8,
            Self::Long => DataType::Int64,
            Self::Double => DataType::Float64,
            Self::Date => DataType::Date32,
            Self::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            Self::Any => given.clone(),
        }
    }
}

/// What a function gives for one row.
pub enum Cell {
    /// Text.
    Text(String),
    /// A number.
    Int(i32),
    /// A number.
    Long(i64),
    /// A number.
    Double(f64),
    /// A list of texts.
    Texts(Vec<String>),
}

type Eval = fn(&mut Row<'_>) -> Result<Option<Cell>>;

/// A function of one row.
struct RowFunction {
    name: &'static str,
    aliases: Vec<String>,
    /// The arguments, and how many of them must be given.
    kinds: &'static [Kind],
    required: usize,
    returns: DataType,
    eval: Eval,
    signature: Signature,
}

/// One row of the arguments.
pub struct Row<'a> {
    arrays: &'a [(ArrayRef, bool)],
    row: usize,
    regex: &'a mut Option<(String, Regex)>,
}

impl Row<'_> {
    fn at(&self, index: usize) -> (&ArrayRef, usize) {
        let (array, is_scalar) = &self.arrays[index];
        (array, if *is_scalar { 0 } else { self.row })
    }

    fn is_given(&self, index: usize) -> bool {
        index < self.arrays.len()
    }

    fn text(&self, index: usize) -> &str {
        let (array, row) = self.at(index);
        array.as_string::<i32>().value(row)
    }

    fn long(&self, index: usize) -> i64 {
        let (array, row) = self.at(index);
        array.as_primitive::<Int64Type>().value(row)
    }

    fn long_or(&self, index: usize, otherwise: i64) -> i64 {
        if self.is_given(index) { self.long(index) } else { otherwise }
    }

    fn double(&self, index: usize) -> f64 {
        let (array, row) = self.at(index);
        array.as_primitive::<Float64Type>().value(row)
    }

    fn days(&self, index: usize) -> i32 {
        let (array, row) = self.at(index);
        array.as_primitive::<Date32Type>().value(row)
    }

    fn micros(&self, index: usize) -> i64 {
        let (array, row) = self.at(index);
        array.as_primitive::<TimestampMicrosecondType>().value(row)
    }

    /// The regular expression of an argument, compiled once for equal ones in a row.
    fn regex(&mut self, index: usize) -> Result<Regex> {
        let pattern = self.text(index);
        if let Some((known, regex)) = &*self.regex
            && known == pattern
        {
            return Ok(regex.clone());
        }
        let regex = Regex::new(pattern).map_err(|error| {
            let error = UserError::new(ErrorKind::InvalidValue, format!("invalid regular expression: {error}"));
            DataFusionError::External(Box::new(error.with_sqlstate("2201B")))
        })?;
        let pattern = pattern.to_owned();
        *self.regex = Some((pattern, regex.clone()));
        Ok(regex)
    }
}

impl fmt::Debug for RowFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for RowFunction {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for RowFunction {}

impl Hash for RowFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for RowFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        if types.len() < self.required || types.len() > self.kinds.len() {
            return plan_err!("function {} takes {} arguments and was given {}", self.name, self.required, types.len());
        }
        Ok(self.kinds.iter().zip(types).map(|(kind, given)| kind.data_type(given)).collect())
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(self.returns.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let all_scalar = args.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = if all_scalar { 1 } else { args.number_rows };
        let column = |value: ColumnarValue| {
            Ok(match value {
                ColumnarValue::Array(array) => (array, false),
                ColumnarValue::Scalar(value) => (value.to_array_of_size(1)?, true),
            })
        };
        let arrays: Vec<_> = args.args.into_iter().map(column).collect::<Result<_>>()?;
        let mut regex = None;
        let mut cells = Vec::with_capacity(rows);
        for row in 0..rows {
            let mut row = Row { arrays: &arrays, row, regex: &mut regex };
            let is_null = (0..arrays.len()).any(|index| {
                let (array, row) = row.at(index);
                array.is_null(row)
            });
            cells.push(if is_null { None } else { (self.eval)(&mut row)? });
        }
        let array = self.array(cells);
        Ok(if all_scalar {
            ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?)
        } else {
            ColumnarValue::Array(array)
        })
    }
}

impl RowFunction {
    fn array(&self, cells: Vec<Option<Cell>>) -> ArrayRef {
        match self.returns {
            DataType::Int32 => Arc::new(
                cells
                    .into_iter()
                    .map(|cell| match cell {
                        Some(Cell::Int(value)) => Some(value),
                        _ => None,
                    })
                    .collect::<Int32Array>(),
            ),
            DataType::Int64 => Arc::new(
                cells
                    .into_iter()
                    .map(|cell| match cell {
                        Some(Cell::Long(value)) => Some(value),
                        _ => None,
                    })
                    .collect::<Int64Array>(),
            ),
            DataType::Float64 => Arc::new(
                cells
                    .into_iter()
                    .map(|cell| match cell {
                        Some(Cell::Double(value)) => Some(value),
                        _ => None,
                    })
                    .collect::<Float64Array>(),
            ),
            DataType::List(_) => {
                let mut lists = ListBuilder::new(StringBuilder::new()).with_field(item());
                for cell in cells {
                    match cell {
                        Some(Cell::Texts(texts)) => lists.append_value(texts.into_iter().map(Some)),
                        _ => lists.append_null(),
                    }
                }
                Arc::new(lists.finish())
            }
            _ => Arc::new(
                cells
                    .into_iter()
                    .map(|cell| match cell {
                        Some(Cell::Text(value)) => Some(value),
                        _ => None,
                    })
                    .collect::<StringArray>(),
            ),
        }
    }
}

fn item() -> Arc<Field> {
    Arc::new(Field::new_list_field(DataType::Utf8, true))
}

fn function(name: &'static str, kinds: &'static [Kind], required: usize, returns: DataType, eval: Eval) -> ScalarUDF {
    let signature = match kinds {
        [Kind::Any] => Signature::any(1, Volatility::Immutable),
        _ => Signature::user_defined(Volatility::Immutable),
    };
    ScalarUDF::new_from_impl(RowFunction { name, aliases: Vec::new(), kinds, required, returns, eval, signature })
}

/// Text as a whole number, as Spark casts it: blanks are ignored, a fraction is cut off.
pub fn whole_number() -> ScalarUDF {
    function("whole_number", &[Kind::Text], 1, DataType::Int64, |row| {
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
    function("timestamp_text", &[Kind::Any], 1, DataType::Utf8, |row| {
        let (array, at) = row.at(0);
        Ok(texts(&array.slice(at, 1))?.pop().map(Cell::Text))
    })
}

/// All functions of this module that have a name in SQL.
pub fn functions() -> Vec<Arc<ScalarUDF>> {
    use Kind::{Any, Date, Double, Long, Text, Timestamp};
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
            let found =
                found.map(|it| it.get_group(group).map(|span| text[span.range()].to_owned()).unwrap_or_default());
            Ok(Some(Cell::Texts(found.collect())))
        }),
        function("locate_from", &[Text, Text, Long], 3, DataType::Int32, |row| {
            let (part, text, from) = (row.text(0), row.text(1), row.long(2));
            let Some(skipped) = usize::try_from(from).ok().and_then(|from| from.checked_sub(1)) else {
                return Ok(Some(Cell::Int(0)));
            };
            let Some((start, _)) = text.char_indices().map(|(at, c)| (at, c)).chain([(text.len(), ' ')]).nth(skipped)
            else {
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
    functions.into_iter().chain(lenient.into_iter().map(Lenient::of)).map(Arc::new).collect()
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

/// Whole months if both are the same day of the month or both the last one; else the rest counts in 31sts, rounded to
/// eight places.
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
    let target = u64::try_from(to.unsigned_abs()).ok().filter(|base| (2..=36).contains(base))?;
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

/// A function whose errors are NULL: a batch that fails is computed again row by row.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Lenient {
    inner: Arc<ScalarUDF>,
}

impl Lenient {
    fn of(inner: Arc<ScalarUDF>) -> ScalarUDF {
        ScalarUDF::new_from_impl(Self { inner })
    }
}

impl ScalarUDFImpl for Lenient {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(types)
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if let Ok(value) = self.inner.invoke_with_args(args.clone()) {
            return Ok(value);
        }
        let null = ScalarValue::try_new_null(args.return_type())?;
        let mut values = Vec::with_capacity(args.number_rows);
        for row in 0..args.number_rows {
            let cells = args.args.iter().map(|value| match value {
                ColumnarValue::Array(array) => ScalarValue::try_from_array(array, row).map(ColumnarValue::Scalar),
                ColumnarValue::Scalar(value) => Ok(ColumnarValue::Scalar(value.clone())),
            });
            let one = ScalarFunctionArgs { args: cells.collect::<Result<_>>()?, number_rows: 1, ..args.clone() };
            values.push(match self.inner.invoke_with_args(one) {
                Ok(ColumnarValue::Scalar(value)) => value,
                Ok(ColumnarValue::Array(array)) => ScalarValue::try_from_array(&array, 0)?,
                Err(_) => null.clone(),
            });
        }
        Ok(ColumnarValue::Array(ScalarValue::iter_to_array(values)?))
    }
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
