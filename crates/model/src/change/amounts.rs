//! Declared amounts in options of pools and quotas: which components an option may name.

use super::shown;
use crate::error::{ErrorKind, UserError};
use crate::quota::DeclaredAmount;
use crate::resource::Component;
use crate::resource::{MAX_CUSTOM_AMOUNTS, MAX_CUSTOM_NAME_BYTES};

/// Checks the custom amounts of a limit. `option` is the option with its object: `LIMIT of resource quota "q_1"`.
pub(super) fn check_custom(option: &str, amount: &DeclaredAmount) -> Result<(), UserError> {
    if amount.custom.len() > MAX_CUSTOM_AMOUNTS {
        return Err(UserError::new(ErrorKind::ProgramLimit, format!("{option} has too many custom amounts"))
            .detail(format!("It has {}; the limit is {MAX_CUSTOM_AMOUNTS}.", amount.custom.len())));
    }
    let Some((name, reason)) = amount.custom.keys().find_map(|name| Some((name, invalid(name)?))) else {
        return Ok(());
    };
    let message = format!("invalid name of a custom amount \"{}\" in {option}", shown(name));
    Err(UserError::new(ErrorKind::InvalidValue, message)
        .detail(format!("A name has 1 to {MAX_CUSTOM_NAME_BYTES} bytes and is not blank."))
        .hint(reason))
}

/// The hint for a name that no custom amount may have.
fn invalid(name: &str) -> Option<String> {
    if name.trim().is_empty() || name.len() > MAX_CUSTOM_NAME_BYTES {
        return Some("Write LIMIT ('nvidia.com/gpu' 2).".to_owned());
    }
    let component =
        Component::ALL.into_iter().find(|component| component.keyword().eq_ignore_ascii_case(name.trim()))?;
    Some(format!("Write {} without quotes.", component.keyword()))
}

/// Refuses custom amounts in an option that is no limit: they are neither guaranteed nor borrowed.
pub(super) fn refuse_custom(option: &str, amount: &DeclaredAmount) -> Result<(), UserError> {
    match amount.custom.keys().next() {
        None => Ok(()),
        Some(name) => {
            let message = format!("custom amount \"{}\" is not supported in {option}", shown(name));
            Err(UserError::new(ErrorKind::NotSupported, message)
                .detail("Custom amounts have limits only.")
                .hint("Name it in the LIMIT of a quota or in the CAPACITY of a resource pool."))
        }
    }
}
