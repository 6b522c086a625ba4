//! What was found: each check with its verdict, and the tally that decides the exit status.
//!
//! A check that was not looked at says why; it is never taken for well.

use std::collections::{BTreeMap, BTreeSet};

use super::checks::{ALL, Check, TICK};

/// How bad something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing is broken; it will be, or somebody should know.
    Warning,
    /// Something does not work, or is not as it must be.
    Problem,
}

/// Subjects that a finding about several of them names.
const MAX_NAMED: usize = 3;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How bad.
    pub severity: Severity,
    /// What it is about: a node, an engine, an alteration. Together with the check it names the finding.
    pub subject: String,
    /// What is wrong.
    pub what: String,
    /// The statement or command that mends it.
    pub mend: String,
    /// Whether it is about how the installation is set up: no tick settles it, so it is not looked at again.
    pub lasting: bool,
    /// What several findings of a check may have in common, as it is reported of all of them.
    pub cause: Option<String>,
}

impl Finding {
    /// Something is broken.
    pub fn problem(subject: impl Into<String>, what: impl Into<String>, mend: impl Into<String>) -> Self {
        let (subject, what, mend) = (subject.into(), what.into(), mend.into());
        Self { severity: Severity::Problem, subject, what, mend, lasting: false, cause: None }
    }

    /// Something should be known.
    pub fn warning(subject: impl Into<String>, what: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::problem(subject, what, mend) }
    }

    /// The same finding, about how the installation is set up.
    pub fn lasting(self) -> Self {
        Self { lasting: true, ..self }
    }

    /// Names what it has in common with other findings of its check: those that name the same are reported as one.
    pub fn because(mut self, cause: Option<String>) -> Self {
        self.cause = cause;
        self
    }
}

/// Findings with one cause as one finding, with their number and the first of their subjects; without a stated cause,
/// those that say the same of different subjects, what mends them included.
fn grouped(findings: Vec<Finding>) -> Vec<Finding> {
    let mut groups: Vec<Vec<Finding>> = Vec::new();
    for finding in findings {
        let is_same = |first: &Finding| {
            let says_the_same = || first.what == finding.what && first.mend == finding.mend;
            let is_same = first.severity == finding.severity && first.cause == finding.cause;
            is_same && (first.cause.is_some() || says_the_same())
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
    let mut names: Vec<String> = group.iter().take(MAX_NAMED).map(|it| it.subject.clone()).collect();
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

/// What became of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// What was seen, in one line; why it was not looked at.
    pub summary: String,
    /// What is wrong; nothing if all is well.
    pub findings: Vec<Finding>,
    /// Whether it was looked at.
    pub looked: bool,
}

/// How one check stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// As it should be.
    Well,
    /// Its worst finding is a warning.
    Warning,
    /// It has a problem.
    Problem,
    /// It was not looked at.
    Skipped,
}

impl Verdict {
    /// The word that is printed.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Well => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
            Self::Skipped => "not looked at",
        }
    }
}

impl Outcome {
    /// How it stands.
    pub fn verdict(&self) -> Verdict {
        match self.findings.iter().map(|it| it.severity).max() {
            _ if !self.looked => Verdict::Skipped,
            None => Verdict::Well,
            Some(Severity::Warning) => Verdict::Warning,
            Some(Severity::Problem) => Verdict::Problem,
        }
    }
}

/// The whole.
#[derive(Debug, Clone, Default)]
pub struct Report {
    outcomes: BTreeMap<Check, Outcome>,
    left_out: BTreeSet<Check>,
}

impl Report {
    /// The check was looked at; all is well if there are no findings.
    pub fn checked(&mut self, check: Check, summary: impl Into<String>, findings: Vec<Finding>) {
        self.outcomes.insert(check, Outcome { summary: summary.into(), findings, looked: true });
    }

    /// The checks were not looked at.
    pub fn skip(&mut self, checks: &[Check], why: &str) {
        for check in checks {
            let outcome = Outcome { summary: why.to_owned(), findings: Vec::new(), looked: false };
            self.outcomes.insert(*check, outcome);
        }
    }

    /// The checks are about something that an installation of this kind does not have: they are no part of the report.
    pub fn leave_out(&mut self, checks: &[Check]) {
        self.left_out.extend(checks);
    }

    /// Takes over everything that another one tells.
    pub fn add(&mut self, other: Self) {
        self.outcomes.extend(other.outcomes);
        self.left_out.extend(other.left_out);
    }

    /// Whether there is a finding that a later look may not have any more.
    pub fn may_settle(&self) -> bool {
        self.outcomes.values().flat_map(|it| &it.findings).any(|it| !it.lasting)
    }

    /// Drops findings that a later look does not have any more; the rest stays as the later look tells it. What is in
    /// motion is seen once, what is wrong is seen again. The last tick is of the moment: what counts is how old it is now.
    pub fn only_what_stays(self, mut later: Self) -> Self {
        for (check, outcome) in &mut later.outcomes {
            let Some(first) = self.outcomes.get(check).filter(|it| it.looked && *check != TICK) else { continue };
            outcome.findings.retain(|it| first.findings.iter().any(|seen| seen.subject == it.subject));
        }
        later
    }

    /// As it is printed: one finding for each cause. Looks are compared before that, because it changes subjects.
    pub fn by_cause(mut self) -> Self {
        for outcome in self.outcomes.values_mut() {
            outcome.findings = grouped(std::mem::take(&mut outcome.findings));
        }
        self
    }

    /// Every check in the order of the report.
    pub fn outcomes(&self) -> impl Iterator<Item = (Check, Outcome)> + '_ {
        let lost = Outcome { summary: "the look did not get that far".to_owned(), findings: Vec::new(), looked: false };
        let is_part = |check: &Check| !self.left_out.contains(check);
        ALL.into_iter().filter(is_part).map(move |check| (check, self.outcomes.get(&check).unwrap_or(&lost).clone()))
    }

    /// The counts.
    pub fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        for (_, outcome) in self.outcomes() {
            if outcome.looked {
                tally.checks += 1;
            } else {
                tally.unseen += 1;
            }
            for finding in &outcome.findings {
                match finding.severity {
                    Severity::Problem => tally.problems += 1,
                    Severity::Warning => tally.warnings += 1,
                }
            }
        }
        tally
    }
}

/// How many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Checks that were looked at.
    pub checks: usize,
    /// Checks that were not.
    pub unseen: usize,
    /// Things that are broken.
    pub problems: usize,
    /// Things to know.
    pub warnings: usize,
}

/// A number of things: `1 engine`, `2 engines`.
pub fn count(number: usize, word: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {word}{ending}")
}

impl Tally {
    /// The closing line.
    pub fn line(&self) -> String {
        let checks = count(self.checks, "check");
        let unseen = if self.unseen == 0 { String::new() } else { format!(", {} not looked at", self.unseen) };
        match (self.problems, self.warnings) {
            (0, 0) if self.unseen == 0 => format!("all is well: {checks}"),
            (0, 0) => format!("all that was looked at is well: {checks}{unseen}"),
            (0, warnings) => format!("no problem, {} in {checks}{unseen}", count(warnings, "warning")),
            (problems, 0) => format!("{} in {checks}{unseen}", count(problems, "problem")),
            (problems, warnings) => {
                format!("{}, {} in {checks}{unseen}", count(problems, "problem"), count(warnings, "warning"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::checks::{DISK, LOCK, ROOM, SERVERS};
    use super::*;

    #[test]
    fn what_was_not_looked_at_is_counted_apart_and_never_well() {
        let mut report = Report::default();
        let line = |report: &Report| report.tally().line();
        assert_eq!(line(&report), "all that was looked at is well: 0 checks, 36 not looked at");
        for check in ALL {
            report.checked(check, "fine", Vec::new());
        }
        assert_eq!(line(&report), "all is well: 36 checks");
        report.checked(DISK, "it fills", vec![Finding::warning("disk", "it fills", "make room")]);
        assert_eq!(line(&report), "no problem, 1 warning in 36 checks");
        report.checked(ROOM, "", vec![Finding::problem("a", "", ""), Finding::problem("b", "", "")]);
        report.skip(&[SERVERS], "because");
        assert_eq!(line(&report), "2 problems, 1 warning in 35 checks, 1 not looked at");
        report.leave_out(&[SERVERS]);
        assert_eq!(line(&report), "2 problems, 1 warning in 35 checks");
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
        report.checked(ROOM, "", findings);
        report.checked(DISK, "", vec![other.clone(), Finding { subject: "y".to_owned(), ..other.clone() }]);
        report.checked(SERVERS, "", vec![refused("a")]);
        let report = report.by_cause();
        let found =
            |check| report.outcomes[&check].findings.iter().map(|it| (&*it.subject, &*it.what)).collect::<Vec<_>>();
        let group = ("a, b, c and 2 more", "engines were not made: the limit is 50 (5 times)");
        assert_eq!(found(ROOM), [group, ("x", "it vanished")]);
        assert_eq!(report.outcomes[&ROOM].findings[0].mend, "DESCRIBE ENGINE a");
        assert_eq!(found(DISK), [("x and y", "it vanished (2 times)")]);
        assert_eq!(found(SERVERS), [("a", "engine a was not made: failure 3: the limit is 50")]);
        assert_eq!(report.tally().problems, 4);
    }

    #[test]
    fn what_is_in_motion_is_dropped_and_what_stays_is_kept() {
        let look = |subjects: &[&str]| {
            let mut report = Report::default();
            report.checked(ROOM, "", subjects.iter().map(|it| Finding::problem(*it, "", "")).collect());
            report
        };
        let stays = look(&["a", "b"]).only_what_stays(look(&["b", "c"]));
        let subjects: Vec<String> = stays.outcomes[&ROOM].findings.iter().map(|it| it.subject.clone()).collect();
        assert_eq!(subjects, ["b"]);
    }

    #[test]
    fn a_finding_that_no_tick_settles_is_not_looked_at_again() {
        let mut report = Report::default();
        report.checked(LOCK, "", vec![Finding::warning("candidates", "", "").lasting()]);
        assert!(!report.may_settle());
        report.checked(ROOM, "", vec![Finding::problem("a", "", "")]);
        assert!(report.may_settle());
    }
}
