//! The report: the result of each check, and the counts that decide the exit status.
//!
//! A check that was skipped has its reason, and never counts as passed.

use std::collections::{BTreeMap, BTreeSet};

use super::checks::{ALL, Check, TICK};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing is broken yet, or an administrator should know.
    Warning,
    /// Something is broken, or violates an invariant.
    Problem,
}

/// The number of subjects that a finding names.
const MAX_NAMED: usize = 3;

/// One defect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub severity: Severity,
    /// The node, engine or alteration that it is about. The check and the subject identify a finding.
    pub subject: String,
    pub what: String,
    /// The statement or command that fixes it.
    pub mend: String,
    /// Whether it is about the set-up of the installation. No tick changes that, so the check is not repeated.
    pub is_about_set_up: bool,
    /// A cause that several findings of a check may share; the text that is reported for all of them.
    pub cause: Option<String>,
}

impl Finding {
    pub fn problem(subject: impl Into<String>, what: impl Into<String>, mend: impl Into<String>) -> Self {
        let (subject, what, mend) = (subject.into(), what.into(), mend.into());
        Self { severity: Severity::Problem, subject, what, mend, is_about_set_up: false, cause: None }
    }

    pub fn warning(subject: impl Into<String>, what: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::problem(subject, what, mend) }
    }

    /// Marks the finding as one about the set-up of the installation.
    pub fn about_set_up(self) -> Self {
        Self { is_about_set_up: true, ..self }
    }

    /// Sets the cause: findings of a check with one cause are reported as one.
    pub fn because(mut self, cause: Option<String>) -> Self {
        self.cause = cause;
        self
    }
}

/// Groups findings with one cause, or with the same text and fix, into one with their number and the first subjects.
fn grouped(findings: Vec<Finding>) -> Vec<Finding> {
    let mut groups: Vec<Vec<Finding>> = Vec::new();
    for finding in findings {
        let is_same = |first: &Finding| {
            let has_same_text = || first.what == finding.what && first.mend == finding.mend;
            let is_same = first.severity == finding.severity && first.cause == finding.cause;
            is_same && (first.cause.is_some() || has_same_text())
        };
        match groups.iter_mut().find(|group| group.first().is_some_and(is_same)) {
            Some(group) => group.push(finding),
            None => groups.push(vec![finding]),
        }
    }
    groups.into_iter().filter_map(as_one).collect()
}

fn as_one(group: Vec<Finding>) -> Option<Finding> {
    let count = group.len();
    let mut names: Vec<String> = group.iter().take(MAX_NAMED).map(|finding| finding.subject.clone()).collect();
    let mut first = group.into_iter().next()?;
    if count == 1 {
        return Some(first);
    }
    if count > MAX_NAMED {
        names.push(format!("{} more", count - MAX_NAMED));
    }
    let last = names.pop().unwrap_or_default();
    first.subject = format!("{} and {last}", names.join(", "));
    first.what = format!("{} ({count} times)", first.cause.take().unwrap_or(first.what));
    Some(first)
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckResult {
    /// The observed state in one line, or why the check was skipped.
    pub summary: String,
    pub findings: Vec<Finding>,
    pub skipped: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// No findings.
    Passed,
    /// Its worst finding is a warning.
    Warning,
    /// At least one finding is a problem.
    Problem,
    /// The state could not be read.
    Skipped,
}

impl Verdict {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
            Self::Skipped => "skipped",
        }
    }
}

impl CheckResult {
    fn skipped(why: &str) -> Self {
        Self { summary: why.to_owned(), findings: Vec::new(), skipped: true }
    }

    pub fn verdict(&self) -> Verdict {
        match self.findings.iter().map(|finding| finding.severity).max() {
            _ if self.skipped => Verdict::Skipped,
            None => Verdict::Passed,
            Some(Severity::Warning) => Verdict::Warning,
            Some(Severity::Problem) => Verdict::Problem,
        }
    }
}

/// The results of all checks.
#[derive(Debug, Clone, Default)]
pub struct Report {
    results: BTreeMap<Check, CheckResult>,
    left_out: BTreeSet<Check>,
}

impl Report {
    /// Records the result of a check; it passed if there are no findings.
    pub fn checked(&mut self, check: Check, summary: impl Into<String>, findings: Vec<Finding>) {
        self.results.insert(check, CheckResult { summary: summary.into(), findings, skipped: false });
    }

    /// Records that the checks were skipped.
    pub fn skip(&mut self, checks: &[Check], why: &str) {
        for check in checks {
            self.results.insert(*check, CheckResult::skipped(why));
        }
    }

    /// Removes checks from the report that do not apply to this kind of installation.
    pub fn leave_out(&mut self, checks: &[Check]) {
        self.left_out.extend(checks);
    }

    /// Adds the results of another report.
    pub fn add(&mut self, other: Self) {
        self.results.extend(other.results);
        self.left_out.extend(other.left_out);
    }

    /// Whether there is a finding that a later run may no longer have.
    pub fn may_resolve(&self) -> bool {
        self.results.values().flat_map(|result| &result.findings).any(|finding| !finding.is_about_set_up)
    }

    /// Keeps the findings that a later run still has, with the later texts: transient states are found once, defects again.
    /// The last tick is judged by the later run alone.
    pub fn only_repeated(self, mut later: Self) -> Self {
        for (check, result) in &mut later.results {
            let Some(first) = self.results.get(check).filter(|result| !result.skipped && *check != TICK) else {
                continue;
            };
            result.findings.retain(|finding| first.findings.iter().any(|seen| seen.subject == finding.subject));
        }
        later
    }

    /// Groups the findings by cause, for printing. Runs are compared before that, because grouping changes subjects.
    pub fn by_cause(mut self) -> Self {
        for result in self.results.values_mut() {
            result.findings = grouped(std::mem::take(&mut result.findings));
        }
        self
    }

    pub fn results(&self) -> impl Iterator<Item = (Check, CheckResult)> + '_ {
        let lost = CheckResult::skipped("the doctor stopped before this check");
        let is_part = |check: &Check| !self.left_out.contains(check);
        ALL.into_iter().filter(is_part).map(move |check| (check, self.results.get(&check).unwrap_or(&lost).clone()))
    }

    pub fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        for (_, result) in self.results() {
            if result.skipped {
                tally.skipped += 1;
            } else {
                tally.checks += 1;
            }
            for finding in &result.findings {
                match finding.severity {
                    Severity::Problem => tally.problems += 1,
                    Severity::Warning => tally.warnings += 1,
                }
            }
        }
        tally
    }
}

/// The number of checks by result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    pub checks: usize,
    pub skipped: usize,
    pub problems: usize,
    pub warnings: usize,
}

/// A count with its noun: `1 engine`, `2 engines`.
pub fn count(number: usize, word: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {word}{ending}")
}

/// The first names of a list, and the number of the others.
pub fn named(names: &[String]) -> String {
    let first = names.get(..MAX_NAMED).unwrap_or(names).join(", ");
    match names.len().saturating_sub(MAX_NAMED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

impl Tally {
    /// The closing line.
    pub fn line(&self) -> String {
        let mut line = match self.problems {
            0 => "no problems".to_owned(),
            problems => count(problems, "problem"),
        };
        if self.warnings > 0 {
            line = format!("{line}, {}", count(self.warnings, "warning"));
        }
        line = format!("{line} in {}", count(self.checks, "check"));
        if self.skipped > 0 {
            line = format!("{line}, {} skipped", self.skipped);
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::super::checks::{CAPACITY, DISK, LOCK, SERVERS};
    use super::*;

    #[test]
    fn skipped_checks_are_counted_separately() {
        let mut report = Report::default();
        let line = |report: &Report| report.tally().line();
        assert_eq!(line(&report), "no problems in 0 checks, 49 skipped");
        for check in ALL {
            report.checked(check, "fine", Vec::new());
        }
        assert_eq!(line(&report), "no problems in 49 checks");
        report.checked(DISK, "it fills", vec![Finding::warning("disk", "it fills", "make room")]);
        assert_eq!(line(&report), "no problems, 1 warning in 49 checks");
        report.checked(CAPACITY, "", vec![Finding::problem("a", "", ""), Finding::problem("b", "", "")]);
        report.skip(&[SERVERS], "because");
        assert_eq!(line(&report), "2 problems, 1 warning in 48 checks, 1 skipped");
        report.leave_out(&[SERVERS]);
        assert_eq!(line(&report), "2 problems, 1 warning in 48 checks");
    }

    #[test]
    fn findings_with_one_cause_are_one_finding_with_their_number() {
        let refused = |subject: &str| {
            let what = format!("engine {subject} was not made: failure 3: the limit is 50");
            Finding::problem(subject, what, format!("DESCRIBE ENGINE {subject}"))
                .because(Some("engines were not made: the limit is 50".to_owned()))
        };
        let other = Finding::problem("x", "it vanished", "wait");
        let mut findings: Vec<Finding> = ["a", "b", "c", "d", "e"].map(refused).to_vec();
        findings.insert(2, other.clone());
        let mut report = Report::default();
        report.checked(CAPACITY, "", findings);
        report.checked(DISK, "", vec![other.clone(), Finding { subject: "y".to_owned(), ..other.clone() }]);
        report.checked(SERVERS, "", vec![refused("a")]);
        let report = report.by_cause();
        let found = |check| {
            report.results[&check]
                .findings
                .iter()
                .map(|finding| (&*finding.subject, &*finding.what))
                .collect::<Vec<_>>()
        };
        let group = ("a, b, c and 2 more", "engines were not made: the limit is 50 (5 times)");
        assert_eq!(found(CAPACITY), [group, ("x", "it vanished")]);
        assert_eq!(report.results[&CAPACITY].findings[0].mend, "DESCRIBE ENGINE a");
        assert_eq!(found(DISK), [("x and y", "it vanished (2 times)")]);
        assert_eq!(found(SERVERS), [("a", "engine a was not made: failure 3: the limit is 50")]);
        assert_eq!(report.tally().problems, 4);
    }

    #[test]
    fn only_findings_of_both_runs_are_kept() {
        let report_of = |subjects: &[&str]| {
            let mut report = Report::default();
            report.checked(CAPACITY, "", subjects.iter().map(|subject| Finding::problem(*subject, "", "")).collect());
            report
        };
        let stays = report_of(&["a", "b"]).only_repeated(report_of(&["b", "c"]));
        let subjects: Vec<String> =
            stays.results[&CAPACITY].findings.iter().map(|finding| finding.subject.clone()).collect();
        assert_eq!(subjects, ["b"]);
    }

    #[test]
    fn a_finding_about_the_set_up_is_not_checked_again() {
        let mut report = Report::default();
        report.checked(LOCK, "", vec![Finding::warning("candidates", "", "").about_set_up()]);
        assert!(!report.may_resolve());
        report.checked(CAPACITY, "", vec![Finding::problem("a", "", "")]);
        assert!(report.may_resolve());
    }
}
