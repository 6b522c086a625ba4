//! The sniffer: whether a statement belongs to the control language.
//!
//! Only the exact heads of the control language do; everything else belongs to the engine, byte for byte. The sniffer
//! reads the head alone, never fails and never allocates, so no SQL text can make it fail.
//!
//! A head that could also be Spark's belongs to the control language only in a form that Spark does not have: `DESC
//! ENGINE x` describes a column of a table, so an engine's name in quotes must follow; `DESC RESERVATION x` does so
//! too, so a string in single quotes must follow; `DESC RESOURCE POOL` needs a name; `DESC TENANT t_1` must end the
//! statement, so `DESC tenant PARTITION (…)` and `DESC tenant AS JSON` remain Spark's.

use model::alteration::ObjectKind;

use crate::scan::Scanner;

/// The verb of a statement about a catalog object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    /// CREATE
    Create,
    /// ALTER
    Alter,
    /// DROP
    Drop,
}

impl Verb {
    pub const ALL: [Self; 3] = [Self::Create, Self::Alter, Self::Drop];

    pub const fn keyword(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Alter => "ALTER",
            Self::Drop => "DROP",
        }
    }
}

/// The head of a control statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Head {
    /// `SHOW ENGINES`
    ShowEngines,
    /// `START ENGINE`
    StartEngine,
    /// `RESTART ENGINE`
    RestartEngine,
    /// `STOP ENGINE`
    StopEngine,
    /// `DESCRIBE ENGINE`
    DescribeEngine,
    /// `SHOW TENANTS`, `SHOW RESOURCE POOLS`, `SHOW RESOURCE UNITS`, `SHOW QUOTAS`
    ShowObjects(ObjectKind),
    /// `SHOW RESOURCE UNIT … FOR POOL`, `SHOW RESOURCE POOL … FOR TENANT`: the kind of the named object.
    ShowObjectFor(ObjectKind),
    /// `DESCRIBE TENANT` and the like.
    Describe(ObjectKind),
    /// `SHOW CREATE TENANT` and the like.
    ShowCreate(ObjectKind),
    /// `CREATE TENANT` and the like.
    Change(Verb, ObjectKind),
    /// `EXPLAIN CREATE TENANT` and the like.
    Explain(Verb, ObjectKind),
    /// `EXPLAIN START ENGINE`
    ExplainStart,
    /// `EXPLAIN RESTART ENGINE`
    ExplainRestart,
    /// `SHOW RESERVATIONS`
    ShowReservations,
    /// `SHOW DEMAND`
    ShowDemand,
    /// `SHOW ENGINE HISTORY`
    ShowEngineHistory,
    /// `DESCRIBE RESERVATION`
    DescribeReservation,
    /// `CANCEL RESERVATION`
    CancelReservation,
    /// `SHOW ALTERATIONS`
    ShowAlterations,
    /// `SHOW AUDIT`
    ShowAudit,
    /// `SHOW MASTER`
    ShowMaster,
}

/// The head of a control statement; `None` for any other statement, which is passed on unchanged. Never fails, never
/// allocates.
pub fn sniff(text: &str) -> Option<Head> {
    sniff_at(text).map(|(head, _)| head)
}

/// The head and where it ends, in bytes from the beginning of the text.
pub(crate) fn sniff_at(text: &str) -> Option<(Head, usize)> {
    let mut scanner = Scanner::new(text);
    let head = head(&mut scanner)?;
    Some((head, scanner.offset()))
}

fn head(scanner: &mut Scanner<'_>) -> Option<Head> {
    if scanner.keyword("SHOW") {
        return show(scanner);
    }
    if scanner.any_keyword(&["DESCRIBE", "DESC"]) {
        return describe(scanner);
    }
    if scanner.keyword("EXPLAIN") {
        return explain(scanner);
    }
    if scanner.keyword("CANCEL") {
        return scanner.keyword("RESERVATION").then_some(Head::CancelReservation);
    }
    let engine_heads = [("START", Head::StartEngine), ("RESTART", Head::RestartEngine), ("STOP", Head::StopEngine)];
    for (keyword, head) in engine_heads {
        if scanner.keyword(keyword) {
            return scanner.keyword("ENGINE").then_some(head);
        }
    }
    Some(Head::Change(verb(scanner)?, object_kind(scanner)?))
}

fn explain(scanner: &mut Scanner<'_>) -> Option<Head> {
    for (keyword, head) in [("START", Head::ExplainStart), ("RESTART", Head::ExplainRestart)] {
        if scanner.keyword(keyword) {
            return scanner.keyword("ENGINE").then_some(head);
        }
    }
    Some(Head::Explain(verb(scanner)?, object_kind(scanner)?))
}

fn show(scanner: &mut Scanner<'_>) -> Option<Head> {
    let heads = [
        ("ENGINES", Head::ShowEngines),
        ("TENANTS", Head::ShowObjects(ObjectKind::Tenant)),
        ("QUOTAS", Head::ShowObjects(ObjectKind::ResourceQuota)),
        ("RESERVATIONS", Head::ShowReservations),
        ("DEMAND", Head::ShowDemand),
        ("ALTERATIONS", Head::ShowAlterations),
        ("AUDIT", Head::ShowAudit),
        ("MASTER", Head::ShowMaster),
    ];
    for (keyword, head) in heads {
        if scanner.keyword(keyword) {
            return Some(head);
        }
    }
    if scanner.keyword("ENGINE") {
        return scanner.keyword("HISTORY").then_some(Head::ShowEngineHistory);
    }
    if scanner.keyword("CREATE") {
        return object_kind(scanner).map(Head::ShowCreate);
    }
    if !scanner.keyword("RESOURCE") {
        return None;
    }
    let heads = [
        ("POOLS", Head::ShowObjects(ObjectKind::ResourcePool)),
        ("UNITS", Head::ShowObjects(ObjectKind::ResourceUnit)),
        ("QUOTAS", Head::ShowObjects(ObjectKind::ResourceQuota)),
        ("POOL", Head::ShowObjectFor(ObjectKind::ResourcePool)),
        ("UNIT", Head::ShowObjectFor(ObjectKind::ResourceUnit)),
    ];
    heads.into_iter().find(|(keyword, _)| scanner.keyword(keyword)).map(|(_, head)| head)
}

fn describe(scanner: &mut Scanner<'_>) -> Option<Head> {
    if scanner.keyword("ENGINE") {
        let mut ahead = *scanner;
        let named = ahead.name() && matches!(ahead.peek(), Some('\'' | '"'));
        return named.then_some(Head::DescribeEngine);
    }
    if scanner.keyword("RESERVATION") {
        return (scanner.peek() == Some('\'')).then_some(Head::DescribeReservation);
    }
    let kind = object_kind(scanner)?;
    let mut ahead = *scanner;
    let ours = ahead.name() && (kind != ObjectKind::Tenant || ends(&mut ahead));
    ours.then_some(Head::Describe(kind))
}

/// Whether the statement is over: the parser checks the text after one `;`.
fn ends(scanner: &mut Scanner<'_>) -> bool {
    matches!(scanner.peek(), None | Some(';'))
}

fn verb(scanner: &mut Scanner<'_>) -> Option<Verb> {
    Verb::ALL.into_iter().find(|verb| scanner.keyword(verb.keyword()))
}

fn object_kind(scanner: &mut Scanner<'_>) -> Option<ObjectKind> {
    if scanner.keyword("TENANT") {
        return Some(ObjectKind::Tenant);
    }
    if !scanner.keyword("RESOURCE") {
        return None;
    }
    let kinds =
        [("POOL", ObjectKind::ResourcePool), ("UNIT", ObjectKind::ResourceUnit), ("QUOTA", ObjectKind::ResourceQuota)];
    kinds.into_iter().find(|(keyword, _)| scanner.keyword(keyword)).map(|(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_head_is_ours_in_any_case_and_with_comments_between_its_words() {
        let pool = ObjectKind::ResourcePool;
        for (text, head) in [
            ("SHOW ENGINES t_1", Head::ShowEngines),
            ("show engines", Head::ShowEngines),
            ("-- hello\n/* a */ Show\t/* b */\r\nEngines;", Head::ShowEngines),
            ("START ENGINE a b c", Head::StartEngine),
            ("restart engine", Head::RestartEngine),
            ("STOP ENGINE", Head::StopEngine),
            ("DESC ENGINE rp_1 'x'", Head::DescribeEngine),
            ("DESCRIBE ENGINE \"rp-1\"'x'", Head::DescribeEngine),
            ("SHOW TENANTS", Head::ShowObjects(ObjectKind::Tenant)),
            ("SHOW RESOURCE POOLS LIKE 'x'", Head::ShowObjects(pool)),
            ("SHOW RESOURCE POOL rp_1 FRO TENANT", Head::ShowObjectFor(pool)),
            ("SHOW CREATE RESOURCE POOL x", Head::ShowCreate(pool)),
            ("SHOW CREATE TENANT x", Head::ShowCreate(ObjectKind::Tenant)),
            ("DESC TENANT t_1 -- x\n;", Head::Describe(ObjectKind::Tenant)),
            ("DESCRIBE RESOURCE POOL x y", Head::Describe(pool)),
            ("EXPLAIN DROP RESOURCE POOL x", Head::Explain(Verb::Drop, pool)),
            ("explain /* */ start engine a b c", Head::ExplainStart),
            ("EXPLAIN RESTART ENGINE rp_1 'x'", Head::ExplainRestart),
            ("SHOW RESERVATIONS POOL rp_1 ALL", Head::ShowReservations),
            ("show demand tenant t_1", Head::ShowDemand),
            ("show engine history t_1", Head::ShowEngineHistory),
            ("DESC RESERVATION 'x'", Head::DescribeReservation),
            ("describe reservation /* */'x'", Head::DescribeReservation),
            ("CANCEL RESERVATION", Head::CancelReservation),
            ("ALTER RESOURCE POOL", Head::Change(Verb::Alter, pool)),
            ("SHOW QUOTAS", Head::ShowObjects(ObjectKind::ResourceQuota)),
            ("show resource /* */ quotas like 'x'", Head::ShowObjects(ObjectKind::ResourceQuota)),
            ("SHOW CREATE RESOURCE QUOTA q", Head::ShowCreate(ObjectKind::ResourceQuota)),
            ("DESC RESOURCE QUOTA q", Head::Describe(ObjectKind::ResourceQuota)),
            ("CREATE RESOURCE QUOTA q", Head::Change(Verb::Create, ObjectKind::ResourceQuota)),
            ("EXPLAIN ALTER RESOURCE QUOTA q", Head::Explain(Verb::Alter, ObjectKind::ResourceQuota)),
            ("SHOW ALTERATIONS", Head::ShowAlterations),
            ("SHOW AUDIT FOR USER 'alice'", Head::ShowAudit),
            ("SHOW MASTER;", Head::ShowMaster),
        ] {
            assert_eq!(sniff(text), Some(head), "{text}");
        }
    }

    #[test]
    fn what_could_be_spark_s_or_hive_s_is_not_ours() {
        for text in [
            "DESC ENGINE",
            "DESC ENGINE x",
            "DESC ENGINE x AS JSON",
            "DESC ENGINE 'x'",
            "DESC TENANT",
            "DESC TENANT AS JSON",
            "DESC TENANT PARTITION (a=1)",
            "DESC RESOURCE POOL",
            "DESC RESOURCE POOL;",
            "SHOW RESOURCE PLAN x",
            "CREATE RESOURCE PLAN x",
            "DESC RESOURCE QUOTA",
            "SHOW RESOURCE QUOTA q",
            "CREATE QUOTA q",
            "SHOW ENGINS t_1",
            "SHOWENGINES",
            "SHOW ENGINES_OF x",
            "EXPLAIN EXTENDED CREATE TENANT x",
            "EXPLAIN START x",
            "EXPLAIN STOP ENGINE rp_1 'x'",
            "DESC RESERVATION",
            "DESC RESERVATION x",
            "DESC RESERVATION \"x\"",
            "DESC RESERVATION AS JSON",
            "SHOW RESERVATION 'x'",
            "SHOW DEMANDS",
            "SHOW ENGINE INNODB STATUS",
            "SHOW ENGINE t_1",
            "CANCEL RESERVATIONS 'x'",
            "/* SHOW ENGINES t_1",
            "'x' SHOW ENGINES",
            "",
        ] {
            assert_eq!(sniff(text), None, "{text}");
        }
    }
}
