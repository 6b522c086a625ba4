//! The credentials of object stores in an engine's environment.

use std::collections::BTreeMap;

/// Prefixes of the variables with credentials of object stores.
const STORE_VARIABLES: [&str; 3] = ["AWS_", "AZURE_", "GOOGLE_"];

/// An object store's credentials from the environment, as options: in a pod, those of its service account. A
/// local process inherits none.
pub fn store_environment() -> BTreeMap<String, String> {
    let is_of_store = |name: &String| STORE_VARIABLES.iter().any(|prefix| name.starts_with(prefix));
    let variables =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    variables.filter(|(name, _)| is_of_store(name)).map(|(name, value)| (name.to_ascii_lowercase(), value)).collect()
}
