//! Check of durability: whether the database keeps acknowledged commits when its machine crashes.
//!
//! Names of engines are drawn from the catalog's counter, which never decreases as long as the database loses nothing. A
//! database that may lose acknowledged writes is reported but not rejected: an installation for experiments may accept that.

use metadata::Durability;

use super::checks::DURABILITY;
use super::report::{Finding, Report};

/// Reports the database's settings.
pub fn check(settings: &[Durability], report: &mut Report) {
    let summary: Vec<String> = settings.iter().map(|setting| format!("{} {}", setting.name, setting.found)).collect();
    let findings = settings.iter().filter_map(|setting| Some(finding(setting, setting.risk?))).collect();
    report.checked(DURABILITY, summary.join(", "), findings);
}

fn finding(setting: &Durability, risk: &str) -> Finding {
    Finding::warning(
        setting.name,
        format!("it is {}: {risk}, and names of engines could be issued twice", setting.found),
        format!("set {} to {} in the database server's configuration", setting.name, setting.recommended),
    )
}

#[cfg(test)]
mod tests {
    use super::super::report::Verdict;
    use super::*;

    fn result_of(settings: &[Durability]) -> (Verdict, String, Vec<String>) {
        let mut report = Report::default();
        check(settings, &mut report);
        let found = report.results().find(|(check, _)| *check == DURABILITY);
        found.map_or((Verdict::Skipped, String::new(), Vec::new()), |(_, result)| {
            let findings = result
                .findings
                .iter()
                .map(|finding| format!("{}: {}; {}", finding.subject, finding.what, finding.mend));
            (result.verdict(), result.summary.clone(), findings.collect())
        })
    }

    #[test]
    fn a_database_that_may_forget_is_a_warning_and_never_a_problem() {
        let setting =
            |found: &str, risk| Durability { name: "fsync", found: found.to_owned(), recommended: "on", risk };
        assert_eq!(result_of(&[setting("on", None)]), (Verdict::Passed, "fsync on".to_owned(), Vec::new()));
        let (verdict, summary, findings) =
            result_of(&[setting("off", Some("a crash may take it back")), setting("on", None)]);
        assert_eq!((verdict, summary.as_str(), findings.len()), (Verdict::Warning, "fsync off, fsync on", 1));
        let expected = "fsync: it is off: a crash may take it back, and names of engines could be issued twice; \
                    set fsync to on in the database server's configuration";
        assert_eq!(findings.first().map(String::as_str), Some(expected));
    }
}
