//! The rights table: which role may run which kind of statement, on whose objects.
//!
//! Pure functions. Proxies and metadata agents decide by [`permits`] alone, and `docs/security.md` has the same table, so a
//! right changes in one place. A caller with several roles has the rights of all of them.
//!
//! A stale caller passes outdated groups or an outdated tenant. A metadata agent therefore decides again in the transaction
//! of the effect, with the tenant that it read there.

use crate::catalog::{Catalog, TenantSpec};
use crate::name::TenantName;
use crate::user_name::is_listed;

/// A role. The first three are roles of the installation, the others of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// `access.admins`
    Admin,
    /// `access.operators`
    Operator,
    /// `access.auditors`
    Auditor,
    /// The tenant's `ADMIN_LIST`, or its `USER_LIST` if it has none.
    TenantAdmin,
    /// The tenant's `USER_LIST`.
    User,
}

/// What a statement does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StatementKind {
    /// SQL that an engine of the tenant executes.
    Query,
    ShowEngines,
    DescribeEngine,
    StartEngine,
    StopEngine,
    RestartEngine,
    /// SHOW TENANTS, SHOW RESOURCE POOLS and SHOW RESOURCE UNITS: which rows they have.
    ShowObjects,
    /// SHOW QUOTAS: which rows it has. In addition each user sees the quota that applies to the own name.
    ShowQuotas,
    /// SHOW RESOURCE POOL … FOR TENANT and SHOW RESOURCE UNIT … FOR POOL.
    ShowObjectFor,
    /// DESCRIBE of a tenant, pool, unit or quota.
    Describe,
    /// SHOW CREATE of a tenant, pool, unit or quota.
    ShowCreate,
    Create,
    Alter,
    Drop,
    Explain,
    /// EXPLAIN START ENGINE and EXPLAIN RESTART ENGINE.
    ExplainStart,
    /// SHOW RESERVATIONS and DESCRIBE RESERVATION: which of them. In addition each user sees those that are charged to the
    /// own name.
    ShowReservations,
    /// SHOW DEMAND: which rows it has.
    ShowDemand,
    /// CANCEL RESERVATION of an external holder. In addition each user may cancel the own ones.
    CancelReservation,
    ShowAlterations,
    ShowAudit,
    ShowMaster,
}

/// Whose object the statement is about, as the role sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// The installation.
    Installation,
    /// A tenant in which the caller has the role. The objects of a tenant are its engines, and what it uses: itself, its
    /// pools and their units.
    OwnTenant,
    /// A tenant in which the caller has no role, also one that does not exist.
    OtherTenant,
}

/// The rights table.
pub const fn permits(role: Role, statement: StatementKind, owner: Owner) -> bool {
    use StatementKind as S;
    match role {
        Role::Admin => true,
        Role::Operator => match statement {
            S::ShowEngines
            | S::DescribeEngine
            | S::StartEngine
            | S::StopEngine
            | S::RestartEngine
            | S::ShowObjects
            | S::ShowQuotas
            | S::ShowObjectFor
            | S::Describe
            | S::ShowCreate
            | S::Explain
            | S::ExplainStart
            | S::ShowReservations
            | S::ShowDemand
            | S::ShowAlterations
            | S::ShowMaster => true,
            S::Query | S::Create | S::Alter | S::Drop | S::CancelReservation | S::ShowAudit => false,
        },
        Role::Auditor => match statement {
            S::ShowEngines
            | S::ShowObjects
            | S::ShowQuotas
            | S::ShowObjectFor
            | S::ShowCreate
            | S::ShowReservations
            | S::ShowDemand
            | S::ShowAlterations
            | S::ShowAudit
            | S::ShowMaster => true,
            S::Query
            | S::DescribeEngine
            | S::StartEngine
            | S::StopEngine
            | S::RestartEngine
            | S::Describe
            | S::Create
            | S::Alter
            | S::Drop
            | S::Explain
            | S::ExplainStart
            | S::CancelReservation => false,
        },
        Role::TenantAdmin => match owner {
            Owner::OwnTenant => match statement {
                S::ShowEngines
                | S::DescribeEngine
                | S::StartEngine
                | S::StopEngine
                | S::RestartEngine
                | S::ShowObjects
                | S::ShowQuotas
                | S::ShowObjectFor
                | S::ExplainStart
                | S::ShowReservations
                | S::ShowDemand => true,
                S::Query
                | S::Describe
                | S::ShowCreate
                | S::Create
                | S::Alter
                | S::Drop
                | S::Explain
                | S::CancelReservation
                | S::ShowAlterations
                | S::ShowAudit
                | S::ShowMaster => false,
            },
            Owner::Installation | Owner::OtherTenant => false,
        },
        Role::User => match owner {
            Owner::OwnTenant => match statement {
                S::Query
                | S::ShowEngines
                | S::DescribeEngine
                | S::ShowObjects
                | S::ShowQuotas
                | S::ShowObjectFor
                | S::ShowReservations
                | S::ShowDemand => true,
                S::StartEngine
                | S::StopEngine
                | S::RestartEngine
                | S::Describe
                | S::ShowCreate
                | S::Create
                | S::Alter
                | S::Drop
                | S::Explain
                | S::ExplainStart
                | S::CancelReservation
                | S::ShowAlterations
                | S::ShowAudit
                | S::ShowMaster => false,
            },
            Owner::Installation | Owner::OtherTenant => false,
        },
    }
}

impl Role {
    pub const ALL: [Self; 5] = [Self::Admin, Self::Operator, Self::Auditor, Self::TenantAdmin, Self::User];

    /// The roles that the configuration gives.
    pub const OF_INSTALLATION: [Self; 3] = [Self::Admin, Self::Operator, Self::Auditor];

    /// Those who have the role, for messages and the documentation.
    pub const fn members(self) -> &'static str {
        match self {
            Self::Admin => "admins",
            Self::Operator => "operators",
            Self::Auditor => "auditors",
            Self::TenantAdmin => "admins of the tenant",
            Self::User => "users of the tenant",
        }
    }
}

impl StatementKind {
    pub const ALL: [Self; 22] = [
        Self::Query,
        Self::ShowEngines,
        Self::DescribeEngine,
        Self::StartEngine,
        Self::StopEngine,
        Self::RestartEngine,
        Self::ShowObjects,
        Self::ShowQuotas,
        Self::ShowObjectFor,
        Self::Describe,
        Self::ShowCreate,
        Self::Create,
        Self::Alter,
        Self::Drop,
        Self::Explain,
        Self::ExplainStart,
        Self::ShowReservations,
        Self::ShowDemand,
        Self::CancelReservation,
        Self::ShowAlterations,
        Self::ShowAudit,
        Self::ShowMaster,
    ];

    /// The statements, for the documentation.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Query => "SQL on engines",
            Self::ShowEngines => "SHOW ENGINES",
            Self::DescribeEngine => "DESCRIBE ENGINE",
            Self::StartEngine => "START ENGINE",
            Self::StopEngine => "STOP ENGINE",
            Self::RestartEngine => "RESTART ENGINE",
            Self::ShowObjects => "rows of SHOW TENANTS, RESOURCE POOLS and RESOURCE UNITS",
            Self::ShowQuotas => "rows of SHOW QUOTAS",
            Self::ShowObjectFor => "SHOW RESOURCE POOL … FOR TENANT, SHOW RESOURCE UNIT … FOR POOL",
            Self::Describe => "DESCRIBE of a tenant, pool, unit or quota",
            Self::ShowCreate => "SHOW CREATE",
            Self::Create => "CREATE",
            Self::Alter => "ALTER",
            Self::Drop => "DROP",
            Self::Explain => "EXPLAIN of CREATE, ALTER and DROP",
            Self::ExplainStart => "EXPLAIN START ENGINE, EXPLAIN RESTART ENGINE",
            Self::ShowReservations => "rows of SHOW RESERVATIONS, DESCRIBE RESERVATION",
            Self::ShowDemand => "rows of SHOW DEMAND",
            Self::CancelReservation => "CANCEL RESERVATION of another user",
            Self::ShowAlterations => "SHOW ALTERATIONS",
            Self::ShowAudit => "SHOW AUDIT",
            Self::ShowMaster => "SHOW MASTER",
        }
    }

    /// The owners that its objects can have.
    pub const fn owners(self) -> &'static [Owner] {
        match self {
            Self::Query
            | Self::ShowEngines
            | Self::DescribeEngine
            | Self::StartEngine
            | Self::StopEngine
            | Self::RestartEngine
            | Self::ShowObjects
            | Self::ShowQuotas
            | Self::ShowObjectFor
            | Self::ExplainStart
            | Self::ShowReservations
            | Self::ShowDemand => &[Owner::OwnTenant, Owner::OtherTenant],
            Self::Describe
            | Self::ShowCreate
            | Self::Create
            | Self::Alter
            | Self::Drop
            | Self::Explain
            | Self::CancelReservation
            | Self::ShowAlterations
            | Self::ShowAudit
            | Self::ShowMaster => &[Owner::Installation],
        }
    }

    /// A sentence that names the roles with the right, for the detail of a refusal.
    pub fn permitted_to(self) -> String {
        let has_right = |role: &Role| self.owners().iter().any(|owner| permits(*role, self, *owner));
        let members: Vec<&str> = Role::ALL.iter().filter(|role| has_right(role)).map(|role| role.members()).collect();
        match members.as_slice() {
            [] => "No role may run this statement.".to_owned(),
            [only] => format!("Only {only} may run this statement."),
            [first @ .., last] => format!("Only {} and {last} may run this statement.", first.join(", ")),
        }
    }
}

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

/// The table of the documentation, in Markdown.
pub fn table() -> String {
    let mut text = "| statement | admin | operator | auditor | admin of the tenant | user of the tenant |\n\
                    | --- | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for statement in StatementKind::ALL {
        text.push_str("| ");
        text.push_str(statement.title());
        for role in Role::ALL {
            text.push_str(" | ");
            text.push_str(cell(role, statement));
        }
        text.push_str(" |\n");
    }
    text
}

fn cell(role: Role, statement: StatementKind) -> &'static str {
    let permitted = |owner: &Owner| permits(role, statement, *owner);
    match (statement.owners().iter().all(permitted), statement.owners().iter().any(permitted)) {
        (true, _) => "yes",
        (false, true) => "own tenant",
        (false, false) => "–",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
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
    fn the_table_of_the_documentation_is_the_rights_table() {
        let page = include_str!("../../../docs/security.md");
        assert!(page.contains(&table()), "docs/security.md must have this table:\n{}", table());
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

    #[test]
    fn a_refusal_names_the_roles_with_the_right() {
        for (statement, expected) in [
            (StatementKind::Drop, "Only admins may run this statement."),
            (StatementKind::ShowAudit, "Only admins and auditors may run this statement."),
            (StatementKind::StartEngine, "Only admins, operators and admins of the tenant may run this statement."),
        ] {
            assert_eq!(statement.permitted_to(), expected);
        }
    }
}
