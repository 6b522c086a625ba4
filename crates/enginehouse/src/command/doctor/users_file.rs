//! Check of the users file: that a proxy can use it at its next start, and that it has users.
//!
//! A running proxy keeps the users that it read last, so a bad file is noticed at the next start at the latest.

use std::path::Path;

use authentication::{UsersFile, UsersFileError};

use super::checks::USERS_FILE;
use super::report::{Finding, Report};
use crate::configuration::{Authentication, Configuration};

/// Checks the file of method `file`; without that method, or without clients, there is nothing to check.
pub fn check(configuration: &Configuration, report: &mut Report) {
    let access = &configuration.access;
    if !access.uses(Authentication::File) || !configuration.proxy.serves_clients {
        return report.leave_out(&[USERS_FILE]);
    }
    let (summary, findings) = diagnose(&access.users_file);
    report.checked(USERS_FILE, summary, findings);
}

fn diagnose(path: &Path) -> (String, Vec<Finding>) {
    let shown = path.display();
    let subject = || shown.to_string();
    let add = format!("enginehouse passwd --file {shown} USER");
    match UsersFile::open(path).map(|file| file.users().len()) {
        Ok(0) => {
            let none = Finding::warning(subject(), "it has no users: no client can log in", add);
            (format!("{shown} has no users"), vec![none.about_set_up()])
        }
        Ok(count) => (format!("{count} in {shown}"), Vec::new()),
        Err(error) => {
            let (what, mend) = match &error {
                UsersFileError::Read { source, .. } => (format!("it cannot be read: {source}"), add),
                UsersFileError::TooLong(_) => (error.to_string(), "remove users that are not needed".to_owned()),
                UsersFileError::OpenToOthers(_) => ("others can access it".to_owned(), format!("chmod 600 {shown}")),
                UsersFileError::Line { source, .. } => (source.to_string(), "correct or delete that line".to_owned()),
            };
            let what = format!("{what}; a proxy refuses to start, and a running one keeps the users that it read last");
            (format!("{shown} cannot be used"), vec![Finding::problem(subject(), what, mend).about_set_up()])
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::report::Verdict;
    use super::*;

    const LINE: &str =
        "ann:$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHRzb21lc2FsdA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA:etl\n";

    #[test]
    fn a_file_that_is_missing_open_or_bad_is_a_problem_with_its_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        let mut configuration = Configuration::default();
        configuration.access.authentication = vec![Authentication::File];
        configuration.access.users_file.clone_from(&path);
        let verdict = |expected: Verdict, what: &str, mend: &str| {
            let mut report = Report::default();
            check(&configuration, &mut report);
            let (_, result) = report.results().find(|(check, _)| *check == USERS_FILE).unwrap();
            assert_eq!(result.verdict(), expected, "{what}");
            for finding in &result.findings {
                assert!(finding.what.contains(what) && finding.mend.contains(mend), "{finding:?}");
            }
        };
        let write = |text: &str, mode: u32| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        verdict(Verdict::Problem, "it cannot be read", "enginehouse passwd --file");
        write(LINE, 0o640);
        verdict(Verdict::Problem, "others can access it", "chmod 600");
        write(&format!("{LINE}bob\n"), 0o600);
        verdict(Verdict::Problem, "line 2: expected user:hash", "that line");
        write("# no user yet\n", 0o600);
        verdict(Verdict::Warning, "no client can log in", "passwd");
        write(LINE, 0o600);
        verdict(Verdict::Passed, "", "");
    }

    #[test]
    fn without_method_file_or_without_clients_there_is_no_check() {
        let trusting = Configuration::default();
        let mut of_a_master = Configuration::default();
        of_a_master.access.authentication = vec![Authentication::File];
        of_a_master.proxy.serves_clients = false;
        for configuration in [trusting, of_a_master] {
            let mut report = Report::default();
            check(&configuration, &mut report);
            assert!(report.results().all(|(check, _)| check != USERS_FILE));
        }
    }
}
