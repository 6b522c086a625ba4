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
}

impl Finding {
    /// Something is broken.
    pub fn problem(subject: impl Into<String>, what: impl Into<String>, mend: impl Into<String>) -> Self {
        let (subject, what, mend) = (subject.into(), what.into(), mend.into());
        Self { severity: Severity::Problem, subject, what, mend, lasting: false }
    }

    /// Something should be known.
    pub fn warning(subject: impl Into<String>, what: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::problem(subject, what, mend) }
    }

    /// The same finding, about how the installation is set up.
    pub fn lasting(self) -> Self {
        Self { lasting: true, ..self }
    }
}

/// What became of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// What was seen, in one line; why it was not looked at.
    pub said: String,
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
    Unseen,
}

impl Verdict {
    /// The word that is printed.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Well => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
            Self::Unseen => "not looked at",
        }
    }
}

impl Outcome {
    /// How it stands.
    pub fn verdict(&self) -> Verdict {
        match self.findings.iter().map(|it| it.severity).max() {
            _ if !self.looked => Verdict::Unseen,
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
    pub fn tell(&mut self, check: Check, said: impl Into<String>, findings: Vec<Finding>) {
        self.outcomes.insert(check, Outcome { said: said.into(), findings, looked: true });
    }

    /// The checks were not looked at.
    pub fn unseen(&mut self, checks: &[Check], why: &str) {
        for check in checks {
            let outcome = Outcome { said: why.to_owned(), findings: Vec::new(), looked: false };
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

    /// Every check in the order of the report.
    pub fn outcomes(&self) -> impl Iterator<Item = (Check, Outcome)> + '_ {
        let lost = Outcome { said: "the look did not get that far".to_owned(), findings: Vec::new(), looked: false };
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
            report.tell(check, "fine", Vec::new());
        }
        assert_eq!(line(&report), "all is well: 36 checks");
        report.tell(DISK, "it fills", vec![Finding::warning("disk", "it fills", "make room")]);
        assert_eq!(line(&report), "no problem, 1 warning in 36 checks");
        report.tell(ROOM, "", vec![Finding::problem("a", "", ""), Finding::problem("b", "", "")]);
        report.unseen(&[SERVERS], "because");
        assert_eq!(line(&report), "2 problems, 1 warning in 35 checks, 1 not looked at");
        report.leave_out(&[SERVERS]);
        assert_eq!(line(&report), "2 problems, 1 warning in 35 checks");
    }

    #[test]
    fn what_is_in_motion_is_dropped_and_what_stays_is_kept() {
        let look = |subjects: &[&str]| {
            let mut report = Report::default();
            report.tell(ROOM, "", subjects.iter().map(|it| Finding::problem(*it, "", "")).collect());
            report
        };
        let stays = look(&["a", "b"]).only_what_stays(look(&["b", "c"]));
        let subjects: Vec<String> = stays.outcomes[&ROOM].findings.iter().map(|it| it.subject.clone()).collect();
        assert_eq!(subjects, ["b"]);
    }

    #[test]
    fn a_finding_that_no_tick_settles_is_not_looked_at_again() {
        let mut report = Report::default();
        report.tell(LOCK, "", vec![Finding::warning("candidates", "", "").lasting()]);
        assert!(!report.may_settle());
        report.tell(ROOM, "", vec![Finding::problem("a", "", "")]);
        assert!(report.may_settle());
    }
}
