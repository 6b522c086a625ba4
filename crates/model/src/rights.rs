//! The rights table: which role may run which kind of statement, on whose objects.
//!
//! Pure functions. Proxies and metadata agents decide by [`permits`] alone, and `docs/security.md` has the same table, so a
//! right changes in one place. A caller with several roles has the rights of all of them.
//!
//! Who has which role is decided by a [`Subject`].

mod subject;

pub use subject::{RoleLists, Subject};

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
    use super::*;

    #[test]
    fn the_table_of_the_documentation_is_the_rights_table() {
        let page = include_str!("../../../docs/security.md");
        assert!(page.contains(&table()), "docs/security.md must have this table:\n{}", table());
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
