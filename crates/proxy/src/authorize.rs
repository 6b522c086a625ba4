//! Whose engines a session may use.
//!
//! An admin counts as a user of every tenant. A user of exactly one tenant is in it; of several, `enginehouse.tenant`
//! chooses; of none, only what needs no tenant. What is refused does not reveal what exists.

use model::catalog::Catalog;
use model::error::{ErrorKind, UserError};
use model::name::TenantName;

/// The tenant of a statement, or why there is none.
pub(crate) fn tenant_of(
    catalog: &Catalog,
    user: &str,
    admins: &[String],
    named: Option<&TenantName>,
) -> Result<TenantName, UserError> {
    let is_admin = admins.iter().any(|admin| admin == user);
    let own: Vec<&TenantName> = if is_admin { catalog.tenants.keys().collect() } else { catalog.tenants_of_user(user) };
    if let Some(named) = named {
        return match own.iter().find(|tenant| **tenant == named) {
            Some(tenant) => Ok((*tenant).clone()),
            None if is_admin => {
                Err(UserError::new(ErrorKind::UndefinedObject, format!("tenant \"{named}\" does not exist"))
                    .hint("SHOW TENANTS lists the tenants"))
            }
            None => Err(UserError::new(
                ErrorKind::InsufficientPrivilege,
                format!("permission denied for tenant \"{named}\""),
            )
            .hint("an admin adds you with ALTER TENANT … USER_LIST (…)")),
        };
    }
    match own.as_slice() {
        [one] => Ok((*one).clone()),
        [] if is_admin => Err(UserError::new(ErrorKind::WrongState, "there is no tenant to run the statement for")
            .hint("CREATE TENANT creates one")),
        [] => Err(UserError::new(ErrorKind::InsufficientPrivilege, format!("user \"{user}\" belongs to no tenant"))
            .hint("an admin adds you with ALTER TENANT … USER_LIST (…)")),
        several => {
            let names: Vec<String> = several.iter().map(|tenant| format!("\"{tenant}\"")).collect();
            Err(UserError::new(ErrorKind::WrongState, format!("user \"{user}\" belongs to several tenants"))
                .detail(format!("tenants {}", names.join(", ")))
                .hint(format!(
                    "connect with ?enginehouse.tenant={} or say SET enginehouse.tenant={}",
                    several[0], several[0]
                )))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use model::catalog::{TenantSpec, Versioned};
    use model::number::Generation;

    fn catalog(tenants: &[(&str, &[&str])]) -> Catalog {
        let mut catalog = Catalog::default();
        for (name, users) in tenants {
            let spec = TenantSpec { users: users.iter().map(|it| (*it).to_owned()).collect(), ..TenantSpec::default() };
            catalog.tenants.insert(TenantName::new(*name).unwrap(), Versioned { spec, generation: Generation(1) });
        }
        catalog
    }

    #[test]
    fn a_user_of_one_tenant_is_in_it_and_of_several_must_choose() {
        let catalog = catalog(&[("t_1", &["ann", "bob"]), ("t_2", &["bob"])]);
        let admins = ["admin".to_owned()];
        let tenant = |user, named: Option<&str>| {
            let named = named.map(|it| TenantName::new(it).unwrap());
            tenant_of(&catalog, user, &admins, named.as_ref())
        };
        assert_eq!(tenant("ann", None).unwrap().as_str(), "t_1");
        let several = tenant("bob", None).unwrap_err();
        assert!(several.detail.unwrap().contains("\"t_1\", \"t_2\""));
        assert_eq!(tenant("bob", Some("t_2")).unwrap().as_str(), "t_2");
        assert_eq!(tenant("ann", Some("t_2")).unwrap_err().sqlstate(), "42501");
        assert_eq!(tenant("eve", None).unwrap_err().sqlstate(), "42501");
        assert_eq!(tenant("admin", Some("t_2")).unwrap().as_str(), "t_2");
    }

    #[test]
    fn a_refusal_is_the_same_for_a_tenant_that_exists_and_one_that_does_not() {
        let catalog = catalog(&[("t_1", &["ann"])]);
        let refused = |name: &str| {
            let named = TenantName::new(name).unwrap();
            tenant_of(&catalog, "eve", &[], Some(&named)).unwrap_err().text().replace(name, "X")
        };
        assert_eq!(refused("t_1"), refused("t_9"));
    }
}
