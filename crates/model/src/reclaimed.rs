//! The reason of an engine that ends because its capacity was reclaimed. The row of the engine has it as text, and a later
//! plan reads the tenant back from it.

use crate::name::TenantName;

const BEFORE: &str = "reclaimed for tenant \"";

/// Why the engine ends: `reclaimed for tenant "t_b"`.
pub fn reason(tenant: &TenantName) -> String {
    format!("{BEFORE}{tenant}\"")
}

/// The tenant that an engine was reclaimed for, by the reason of its end; `None` if it ends for another one.
pub fn tenant(reason: &str) -> Option<TenantName> {
    TenantName::new(reason.strip_prefix(BEFORE)?.strip_suffix('"')?).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_tenant_is_read_back_from_the_reason() {
        let name = TenantName::new("t_b").unwrap();
        assert_eq!(reason(&name), "reclaimed for tenant \"t_b\"");
        assert_eq!(tenant(&reason(&name)), Some(name));
        assert_eq!(tenant("resource unit \"reclaimed for tenant\" was dropped"), None);
        assert_eq!(tenant("reclaimed for tenant \"\""), None);
    }
}
