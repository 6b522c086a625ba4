//! The rules of impersonation: which user may act for which others, as in `"superset: @analysts, carl"`.
//!
//! A rule permits one user to impersonate others: named users, the users of groups, or `*` for any user. That admins,
//! operators and auditors are never impersonated is decided by the caller, who knows the roles.

use model::catalog::MAX_LIST;
use model::text::cut;
use model::user_name::{MAX_USER_NAME_BYTES, is_entry, is_listed, is_user_name};

/// The most rules.
const MAX_RULES: usize = 1_000;
/// The entry of a rule that stands for any user.
const ANY: &str = "*";

/// The rules, as the configuration lists them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImpersonationRules(Vec<Rule>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    /// The user who may impersonate.
    impersonator: String,
    /// Whether it may impersonate any user.
    any: bool,
    /// Users, and groups after `@`.
    targets: Vec<String>,
}

/// Why a rule is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("rule {position}: {reason}")]
pub struct RuleError {
    /// Counts from 1.
    pub position: usize,
    pub reason: RuleErrorReason,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleErrorReason {
    #[error("expected \"user: user, @group, *\"")]
    Form,
    #[error("\"{}\" before the colon is not the name of a user", .0.escape_debug())]
    Impersonator(String),
    #[error("\"{}\" is neither the name of a user, nor of a group after @, nor *", .0.escape_debug())]
    Target(String),
    #[error("it names more than {MAX_LIST} users and groups")]
    TooLong,
    #[error("there are more than {MAX_RULES} rules")]
    TooMany,
}

impl ImpersonationRules {
    /// Parses rules `who: whom, @group, *`. An error for the first rule of another form, with an invalid name or too many
    /// names, and for one beyond the most.
    pub fn parse(rules: &[String]) -> Result<Self, RuleError> {
        let parsed = rules.iter().enumerate().map(|(index, rule)| {
            let failed = |reason| RuleError { position: index + 1, reason };
            if index >= MAX_RULES { Err(failed(RuleErrorReason::TooMany)) } else { Rule::parse(rule).map_err(failed) }
        });
        Ok(Self(parsed.collect::<Result<_, _>>()?))
    }

    /// Whether a rule permits `impersonator` to act for the user with these groups.
    pub fn permit(&self, impersonator: &str, user: &str, groups: &[String]) -> bool {
        let mut of_impersonator = self.0.iter().filter(|rule| rule.impersonator == impersonator);
        of_impersonator.any(|rule| rule.any || is_listed(&rule.targets, user, groups))
    }

    /// Whether a rule names a group.
    pub fn name_groups(&self) -> bool {
        self.0.iter().any(|rule| rule.targets.iter().any(|target| target.starts_with('@')))
    }
}

impl Rule {
    fn parse(text: &str) -> Result<Self, RuleErrorReason> {
        let (impersonator, targets) = text.split_once(':').ok_or(RuleErrorReason::Form)?;
        let impersonator = impersonator.trim();
        if !is_user_name(impersonator) || impersonator == ANY {
            return Err(RuleErrorReason::Impersonator(shown(impersonator)));
        }
        if targets.trim().is_empty() {
            return Err(RuleErrorReason::Form);
        }
        let (any, targets): (Vec<&str>, Vec<&str>) =
            targets.split(',').map(str::trim).partition(|target| *target == ANY);
        if let Some(target) = targets.iter().find(|target| !is_entry(target)) {
            return Err(RuleErrorReason::Target(shown(target)));
        }
        if targets.len() > MAX_LIST {
            return Err(RuleErrorReason::TooLong);
        }
        Ok(Self {
            impersonator: impersonator.to_owned(),
            any: !any.is_empty(),
            targets: targets.into_iter().map(str::to_owned).collect(),
        })
    }
}

fn shown(name: &str) -> String {
    cut(name, MAX_USER_NAME_BYTES).to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn rules(of: &[&str]) -> Result<ImpersonationRules, RuleError> {
        ImpersonationRules::parse(&of.iter().map(|rule| (*rule).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_rule_permits_named_users_groups_or_any_user() {
        let rules = rules(&["superset: @analysts, carl", "etl:etl_a,etl_b", "hue: *", "superset: dora"]).unwrap();
        let analysts = ["analysts".to_owned()];
        for (impersonator, user, groups, permitted) in [
            ("superset", "ann", &analysts[..], true),
            ("superset", "ann", &[], false),
            ("superset", "carl", &[], true),
            ("superset", "dora", &[], true),
            ("superset", "analysts", &[], false),
            ("etl", "etl_b", &[], true),
            ("etl", "carl", &[], false),
            ("hue", "anyone", &[], true),
            ("Hue", "anyone", &[], false),
            ("other", "carl", &analysts, false),
        ] {
            assert_eq!(rules.permit(impersonator, user, groups), permitted, "{impersonator} {user} {groups:?}");
        }
        assert!(rules.name_groups());
    }

    #[test]
    fn an_invalid_rule_is_named_by_its_position() {
        for (rule, expected) in [
            ("superset", "rule 2: expected \"user: user, @group, *\""),
            ("superset: ", "rule 2: expected"),
            ("@bi: ann", "rule 2: \"@bi\" before the colon is not"),
            (": ann", "rule 2: \"\" before the colon"),
            ("*: ann", "rule 2: \"*\" before the colon"),
            ("superset: ann,, bob", "rule 2: \"\" is neither"),
            ("superset: @", "rule 2: \"@\" is neither"),
        ] {
            let error = rules(&["etl: etl_a", rule]).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{rule}: {error}");
        }
        let many = vec!["a: b".to_owned(); MAX_RULES + 1];
        assert_eq!(ImpersonationRules::parse(&many).unwrap_err().reason, RuleErrorReason::TooMany);
    }
}
