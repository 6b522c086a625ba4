//! Authorization: the tenant whose engines a session may use.
//!
//! The rights table decides which tenants those are: an admin may query every one. A user of exactly one tenant uses it; a
//! user of several chooses with `enginehouse.tenant`; a user of none can use only what needs no tenant. A refusal does not
//! reveal which tenants exist.

use model::catalog::Catalog;
use model::error::{ErrorKind, UserError};
use model::name::TenantName;
use model::rights::{StatementKind, Subject};

pub(crate) fn tenant_of(
    catalog: &Catalog,
    subject: &Subject,
    named: Option<&TenantName>,
) -> Result<TenantName, UserError> {
    let user = &subject.user;
    let sees_all = subject.may_in_any(StatementKind::Query);
    let own = subject.tenants(catalog, StatementKind::Query);
    if let Some(named) = named {
        return match own.iter().find(|tenant| **tenant == named) {
            Some(tenant) => Ok((*tenant).clone()),
            None if sees_all => {
                Err(UserError::new(ErrorKind::UndefinedObject, format!("tenant \"{named}\" does not exist"))
                    .hint("SHOW TENANTS lists the tenants."))
            }
            None => Err(UserError::new(
                ErrorKind::InsufficientPrivilege,
                format!("permission denied for tenant \"{named}\""),
            )
            .hint("An admin adds you with ALTER TENANT … USER_LIST (…).")),
        };
    }
    match own.as_slice() {
        [one] => Ok((*one).clone()),
        [] if sees_all => {
            Err(UserError::new(ErrorKind::WrongState, "no tenant exists").hint("Create one with CREATE TENANT."))
        }
        [] => Err(UserError::new(ErrorKind::InsufficientPrivilege, format!("user \"{user}\" belongs to no tenant"))
            .hint("An admin adds you with ALTER TENANT … USER_LIST (…).")),
        several => {
            let names: Vec<String> = several.iter().map(|tenant| format!("\"{tenant}\"")).collect();
            Err(UserError::new(ErrorKind::WrongState, format!("user \"{user}\" belongs to several tenants"))
                .detail(format!("The tenants are {}.", names.join(", ")))
                .hint(format!(
                    "Connect with ?enginehouse.tenant={}, or run SET enginehouse.tenant={}.",
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
    use model::rights::RoleLists;

    fn catalog(tenants: &[(&str, &[&str])]) -> Catalog {
        let mut catalog = Catalog::default();
        for (name, users) in tenants {
            let spec =
                TenantSpec { users: users.iter().map(|user| (*user).to_owned()).collect(), ..TenantSpec::default() };
            catalog.tenants.insert(TenantName::new(*name).unwrap(), Versioned { spec, generation: Generation(1) });
        }
        catalog
    }

    fn subject(user: &str, groups: &[&str]) -> Subject {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        let operators = vec!["oper".to_owned()];
        Subject::new(user, groups, &RoleLists { operators, ..RoleLists::of_admins(&["admin"]) })
    }

    #[test]
    fn a_group_in_a_user_list_grants_its_members_and_operators_have_no_tenant() {
        let catalog = catalog(&[("t_1", &["@analysts"])]);
        assert_eq!(tenant_of(&catalog, &subject("ann", &["analysts"]), None).unwrap().as_str(), "t_1");
        for refused in [subject("ann", &[]), subject("analysts", &[]), subject("oper", &["etl"])] {
            assert_eq!(tenant_of(&catalog, &refused, None).unwrap_err().sqlstate(), "42501", "{refused:?}");
        }
    }

    #[test]
    fn a_user_of_one_tenant_uses_it_and_one_of_several_must_choose() {
        let catalog = catalog(&[("t_1", &["ann", "bob"]), ("t_2", &["bob"])]);
        let tenant = |user: &str, named: Option<&str>| {
            let named = named.map(|name| TenantName::new(name).unwrap());
            tenant_of(&catalog, &subject(user, &[]), named.as_ref())
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
    fn a_refusal_does_not_reveal_whether_the_tenant_exists() {
        let catalog = catalog(&[("t_1", &["ann"])]);
        let refused = |name: &str| {
            let named = TenantName::new(name).unwrap();
            tenant_of(&catalog, &subject("eve", &[]), Some(&named)).unwrap_err().text().replace(name, "X")
        };
        assert_eq!(refused("t_1"), refused("t_9"));
    }
}
