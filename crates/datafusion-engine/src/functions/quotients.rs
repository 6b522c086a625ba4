//! Division of exact numbers with Spark's result types.
//!
//! DataFusion's quotient has four more decimal places than the dividend and is truncated. Spark's has at least six, as many
//! as its operands need, and is rounded. So the dividend is cast to a scale with which DataFusion's quotient has one more
//! decimal place than Spark's, and the cast to Spark's type rounds.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Expr;

/// How many decimal places DataFusion adds to those of the dividend.
const ADDED_SCALE: i16 = 4;
/// The least decimal places of a quotient.
const SCALE_MIN: i16 = 6;
/// The most digits of a DECIMAL, and of the type in which a wide one is computed.
const PRECISION_MAX: i16 = 38;
const WIDE_PRECISION_MAX: i16 = 76;

/// The types in which a division is computed.
#[derive(Debug, PartialEq, Eq)]
pub struct Quotient {
    /// That of the dividend.
    pub dividend: DataType,
    /// That of the divisor.
    pub divisor: DataType,
    /// That of the result.
    pub result: DataType,
}

impl Quotient {
    /// The types for two operands; `None` unless both are exact and their quotient can be computed.
    pub fn for_operands(left: (&Expr, &DataType), right: (&Expr, &DataType)) -> Option<Self> {
        let ((p1, s1), (p2, s2)) = (digits(left.0, left.1)?, digits(right.0, right.1)?);
        // `DecimalType.adjustPrecisionScale` of Spark.
        let (whole, scale) = (p1 - s1 + s2, SCALE_MIN.max(s1 + p2 + 1));
        let (precision, scale) = if whole + scale <= PRECISION_MAX {
            (whole + scale, scale)
        } else {
            (PRECISION_MAX, (PRECISION_MAX - whole).max(scale.min(SCALE_MIN)))
        };
        let dividend_scale = s1.max(scale + 1 - ADDED_SCALE);
        // The quotient is computed as an integer with this many digits.
        let computed = whole + dividend_scale + ADDED_SCALE;
        if computed > WIDE_PRECISION_MAX {
            return None;
        }
        let is_wide = computed > PRECISION_MAX;
        Some(Self {
            dividend: decimal((p1 - s1 + dividend_scale, dividend_scale), is_wide),
            divisor: decimal((p2, s2), is_wide),
            result: decimal((precision, scale), false),
        })
    }
}

fn decimal((precision, scale): (i16, i16), is_wide: bool) -> DataType {
    // Both are positive and small.
    if is_wide {
        DataType::Decimal256(precision as u8, scale as i8)
    } else {
        DataType::Decimal128(precision as u8, scale as i8)
    }
}

/// The precision and scale of an exact number. A constant has the digits of its value.
fn digits(expr: &Expr, data_type: &DataType) -> Option<(i16, i16)> {
    if let Expr::Literal(ScalarValue::Int64(Some(value)), _) = expr {
        return Some((value.unsigned_abs().checked_ilog10().unwrap_or(0) as i16 + 1, 0));
    }
    Some(match data_type {
        DataType::Int8 | DataType::UInt8 => (3, 0),
        DataType::Int16 | DataType::UInt16 => (5, 0),
        DataType::Int32 | DataType::UInt32 => (10, 0),
        DataType::Int64 | DataType::UInt64 => (20, 0),
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
            if *scale >= 0 =>
        {
            (i16::from(*precision), i16::from(*scale))
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{col, lit};

    use super::*;

    #[test]
    fn quotients_have_the_digits_of_spark() {
        let decimal = DataType::Decimal128;
        for (left, right, expected) in [
            (decimal(10, 2), DataType::Int32, decimal(21, 13)),
            (decimal(18, 2), decimal(18, 2), decimal(38, 20)),
            (decimal(38, 10), decimal(38, 10), decimal(38, 6)),
            (decimal(3, 1), decimal(3, 1), decimal(9, 6)),
            (DataType::Int64, decimal(10, 2), decimal(33, 11)),
        ] {
            let quotient = Quotient::for_operands((&col("a"), &left), (&col("b"), &right));
            assert_eq!(quotient.map(|quotient| quotient.result), Some(expected), "{left} / {right}");
        }
        let by_three = Quotient::for_operands((&col("a"), &decimal(10, 2)), (&lit(3_i64), &DataType::Int64));
        assert_eq!(by_three.map(|quotient| quotient.result), Some(decimal(14, 6)));
        assert_eq!(Quotient::for_operands((&col("a"), &decimal(10, 2)), (&col("b"), &DataType::Float64)), None);
    }
}
