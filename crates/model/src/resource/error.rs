//! The errors of resource values. Each names what was read or computed; none is retryable.

use super::kind::Kind;
use crate::error::{ErrorKind, KIND_MISMATCH, KIND_UNKNOWN, UserError};
use crate::text::cut;

/// The longest part of an input that an error repeats, in bytes.
const MAX_SHOWN_BYTES: usize = 100;

pub(super) fn no_policy(kind: Kind) -> UserError {
    UserError::new(ErrorKind::InvalidValue, format!("resource kind \"{kind}\" has no request policy"))
        .detail("No request of this kind can be charged (KIND_UNKNOWN).")
        .with_error_code(KIND_UNKNOWN)
}

pub(super) fn kind_mismatch(left: Kind, right: Kind) -> UserError {
    UserError::new(ErrorKind::InvalidValue, format!("resource kinds \"{left}\" and \"{right}\" do not combine"))
        .detail(
            "Queue and Special combine with their own kind only, and the other kinds with one another (KIND_MISMATCH).",
        )
        .with_error_code(KIND_MISMATCH)
}

/// A resource of another kind than its position or its pool requires.
pub(super) fn kind_required(required: Kind, found: Kind) -> UserError {
    let message = format!("resource of kind \"{found}\" where kind \"{required}\" is required");
    UserError::new(ErrorKind::InvalidValue, message)
        .detail("A resource pool also accepts the kinds that are promoted to its kind (KIND_MISMATCH).")
        .with_error_code(KIND_MISMATCH)
}

pub(super) fn queue_mismatch(left: &str, right: &str) -> UserError {
    let message = format!("resources of queues \"{left}\" and \"{right}\" do not combine");
    UserError::new(ErrorKind::InvalidValue, message)
        .detail("Both resources must name the same queue (KIND_MISMATCH).")
        .with_error_code(KIND_MISMATCH)
}

/// A product or quotient with a driver and its executors.
pub(super) fn no_product(left: Kind, right: Kind) -> UserError {
    let message = format!("cannot multiply or divide resources of kinds \"{left}\" and \"{right}\"");
    UserError::new(ErrorKind::InvalidValue, message)
        .detail("A resource of kind DriverAndExecutor is multiplied or divided by a ratio only (KIND_MISMATCH).")
        .with_error_code(KIND_MISMATCH)
}

pub(super) fn out_of_range() -> UserError {
    UserError::new(ErrorKind::DataException, "bigint out of range").with_sqlstate("22003")
}

pub(super) fn division_by_zero() -> UserError {
    UserError::new(ErrorKind::DataException, "division by zero").with_sqlstate("22012")
}

pub(super) fn invalid_ratio(text: &str) -> UserError {
    UserError::new(ErrorKind::InvalidValue, format!("invalid ratio \"{}\"", cut(text, MAX_SHOWN_BYTES)))
        .detail("A ratio is a decimal of at least 0 with at most six digits after the point.")
        .hint("Write 2 or 0.5.")
}

pub(super) fn custom_name(name: &str) -> UserError {
    let message = format!("invalid name of a custom amount \"{}\"", cut(name, MAX_SHOWN_BYTES));
    UserError::new(ErrorKind::InvalidValue, message).detail("A name has 1 to 128 bytes.")
}

pub(super) fn custom_amounts(number: usize) -> UserError {
    UserError::new(ErrorKind::ProgramLimit, "too many custom amounts")
        .detail(format!("The resource has {number}, and the limit is {}.", super::MAX_CUSTOM_AMOUNTS))
}

pub(super) fn custom_not_charged() -> UserError {
    UserError::new(ErrorKind::NotSupported, "custom amounts cannot be requested")
        .hint("Request memory, CPU and instances only.")
}

/// JSON that is no object, or has a field of another shape.
pub(super) fn invalid_json(reason: &str) -> UserError {
    UserError::new(ErrorKind::InvalidValue, "invalid resource").detail(crate::text::as_detail(reason))
}

pub(super) fn missing(kind: Kind, field: &str) -> UserError {
    UserError::new(ErrorKind::InvalidValue, format!("resource of kind \"{kind}\" has no field \"{field}\""))
}

pub(super) fn specified_twice(field: &str, other: &str) -> UserError {
    let error = UserError::new(ErrorKind::InvalidValue, format!("field \"{field}\" specified more than once"));
    if field == other { error } else { error.detail(format!("\"{other}\" is another name of it.")) }
}

/// A field whose value is not what `expected`, a whole sentence, describes.
pub(super) fn invalid_field(field: &str, found: &str, expected: impl Into<String>) -> UserError {
    let message = format!("invalid value of field \"{field}\": {}", cut(found, MAX_SHOWN_BYTES));
    UserError::new(ErrorKind::InvalidValue, message).detail(expected)
}

/// An amount that is charged and lies outside of 0 to [`super::MAX_AMOUNT`].
pub(super) fn not_chargeable(amount: i64) -> UserError {
    UserError::new(ErrorKind::InvalidValue, format!("amount {amount} cannot be requested"))
        .detail(format!("An amount is from 0 to {}.", super::MAX_AMOUNT))
}
