//! A subject: a user with groups and roles, and on which objects they give a right.
//!
//! The roles of the installation are decided when it is made, from the lists of the configuration; those of a tenant at each
//! question, from the tenant's lists.
//!
//! A stale caller passes outdated groups or an outdated tenant. A metadata agent therefore decides again in the transaction
//! of the effect, with the tenant that it read there.

use super::{Owner, Role, StatementKind, permits};
use crate::catalog::{Catalog, TenantSpec};
use crate::name::TenantName;
use crate::user_name::is_listed;

/// Who has a role of the installation: users, and groups after `@`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RoleLists {
    pub admins: Vec<String>,
    pub operators: Vec<String>,
    pub auditors: Vec<String>,
}

impl RoleLists {
    /// Only admins.
    pub fn of_admins(admins: &[&str]) -> Self {
        Self { admins: admins.iter().map(|admin| (*admin).to_owned()).collect(), ..Self::default() }
    }

    fn has(&self, role: Role, user: &str, groups: &[String]) -> bool {
        match role {
            Role::Admin => is_listed(&self.admins, user, groups),
            Role::Operator => is_listed(&self.operators, user, groups),
            Role::Auditor => is_listed(&self.auditors, user, groups),
            Role::TenantAdmin | Role::User => false,
        }
    }
}

/// A user with groups and roles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    pub user: String,
    /// Without `@`.
    pub groups: Vec<String>,
    /// Roles of the installation.
    roles: Vec<Role>,
}

impl Subject {
    pub fn new(user: impl Into<String>, groups: Vec<String>, lists: &RoleLists) -> Self {
        let user = user.into();
        let roles = Role::OF_INSTALLATION.into_iter().filter(|role| lists.has(*role, &user, &groups)).collect();
        Self { user, groups, roles }
    }

    /// Whether the user is an admin, operator or auditor.
    pub fn has_role_of_installation(&self) -> bool {
        !self.roles.is_empty()
    }

    /// Whether the user may run the statement on an object of the installation.
    pub fn may(&self, statement: StatementKind) -> bool {
        self.roles.iter().any(|role| permits(*role, statement, Owner::Installation))
    }

    /// Whether the user may run the statement on an object of the tenant; `None` if it does not exist.
    pub fn may_in(&self, statement: StatementKind, tenant: Option<&TenantSpec>) -> bool {
        let of_tenant = [Role::TenantAdmin, Role::User];
        of_tenant.into_iter().any(|role| self.has_in(role, tenant) && permits(role, statement, Owner::OwnTenant))
            || self.may_in_any(statement)
    }

    /// Whether the user may run the statement on the objects of every tenant.
    pub fn may_in_any(&self, statement: StatementKind) -> bool {
        self.roles.iter().any(|role| permits(*role, statement, Owner::OtherTenant))
    }

    /// Whether the user has a role in the tenant.
    pub fn is_of(&self, tenant: &TenantSpec) -> bool {
        self.has_in(Role::User, Some(tenant)) || self.has_in(Role::TenantAdmin, Some(tenant))
    }

    /// The tenants on whose objects the user may run the statement.
    pub fn tenants<'a>(&self, catalog: &'a Catalog, statement: StatementKind) -> Vec<&'a TenantName> {
        let permitted = catalog.tenants.iter().filter(|(_, tenant)| self.may_in(statement, Some(&tenant.spec)));
        permitted.map(|(name, _)| name).collect()
    }

    /// Whether the user may see what is no tenant's: names of hosts and processes, and warnings of the cluster.
    pub fn sees_installation(&self) -> bool {
        self.may(StatementKind::ShowMaster)
    }

    fn has_in(&self, role: Role, tenant: Option<&TenantSpec>) -> bool {
        let Some(tenant) = tenant else { return false };
        let list = match role {
            Role::User => &tenant.users,
            Role::TenantAdmin => tenant.admins.as_ref().unwrap_or(&tenant.users),
            Role::Admin | Role::Operator | Role::Auditor => return false,
        };
        is_listed(list, &self.user, &self.groups)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(of: &[&str]) -> Vec<String> {
        of.iter().map(|entry| (*entry).to_owned()).collect()
    }

    fn subject(user: &str, groups: &[&str]) -> Subject {
        let lists =
            RoleLists { admins: list(&["root"]), operators: list(&["@ops"]), auditors: list(&["eve", "@audit"]) };
        Subject::new(user, list(groups), &lists)
    }

    #[test]
    fn roles_are_given_to_users_and_groups_and_add_up() {
        let (none, both) = (subject("ann", &["etl"]), subject("eve", &["ops"]));
        assert!(!none.has_role_of_installation() && none.may_in(StatementKind::ShowEngines, None).eq(&false));
        assert!(both.may(StatementKind::ShowAudit) && both.may_in_any(StatementKind::StartEngine));
        assert!(!both.may(StatementKind::Drop) && !both.may_in_any(StatementKind::Query));
        assert!(subject("root", &[]).may(StatementKind::Drop));
        assert!(!subject("ops", &[]).has_role_of_installation(), "a user of a group's name");
    }

    #[test]
    fn an_admin_list_restricts_users_and_its_absence_does_not() {
        let mut tenant = TenantSpec { users: list(&["ann", "@etl"]), ..TenantSpec::default() };
        let start = StatementKind::StartEngine;
        let (ann, bob, tim) = (subject("ann", &[]), subject("bob", &["etl"]), subject("tim", &["leads"]));
        assert!(ann.may_in(start, Some(&tenant)) && bob.may_in(start, Some(&tenant)));
        tenant.admins = Some(list(&["@leads"]));
        assert!(!ann.may_in(start, Some(&tenant)) && ann.may_in(StatementKind::Query, Some(&tenant)));
        assert!(tim.may_in(start, Some(&tenant)) && !tim.may_in(StatementKind::Query, Some(&tenant)));
        assert!(tim.is_of(&tenant) && !subject("zoe", &[]).is_of(&tenant));
        tenant.admins = Some(Vec::new());
        assert!(!tim.may_in(start, Some(&tenant)) && subject("olga", &["ops"]).may_in(start, Some(&tenant)));
    }
}
