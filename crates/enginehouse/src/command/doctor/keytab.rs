//! Check of method `kerberos`: that the keytab can be used.
//!
//! It is the one that `KRB5_KTNAME` names here, as a proxy on this machine has it.

use super::checks::KEYTAB;
use super::report::{Finding, Report};
use crate::configuration::{Authentication, Configuration};
use crate::keytab;

/// Checks the keytab; without that method, or without clients, there is nothing to check.
pub fn check(configuration: &Configuration, report: &mut Report) {
    if !configuration.access.uses(Authentication::Kerberos) || !configuration.proxy.serves_clients {
        return report.leave_out(&[KEYTAB]);
    }
    let subject = keytab::file().map_or_else(|| "the machine's keytab".to_owned(), |path| path.display().to_string());
    let Err(error) = keytab::check() else {
        return report.checked(KEYTAB, format!("{subject} can be used"), Vec::new());
    };
    let text = error.to_string();
    let (what, hint) = text.split_once("\nHint: ").unwrap_or((&text, "make another keytab"));
    let finding = Finding::problem(subject, format!("{what}; a proxy refuses to start"), hint.trim_end_matches('.'));
    report.checked(KEYTAB, "it cannot be used", vec![finding.about_set_up()]);
}

#[cfg(test)]
mod tests {
    use super::super::report::Verdict;
    use super::*;

    fn verdict(configuration: &Configuration) -> Option<Verdict> {
        let mut report = Report::default();
        check(configuration, &mut report);
        let (_, result) = report.results().find(|(check, _)| *check == KEYTAB)?;
        Some(result.verdict())
    }

    #[test]
    fn without_the_method_there_is_no_keytab() {
        let mut configuration = Configuration::default();
        assert_eq!(verdict(&configuration), None);
        configuration.access.authentication = vec![Authentication::Kerberos];
        // A program without Kerberos reads none, and its configuration is refused before.
        assert!(cfg!(feature = "kerberos") || verdict(&configuration) == Some(Verdict::Passed));
        configuration.proxy.serves_clients = false;
        assert_eq!(verdict(&configuration), None);
    }
}
