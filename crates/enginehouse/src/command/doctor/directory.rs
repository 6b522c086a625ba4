//! Check of the directory of method `ldap`: that each of its servers accepts a connection, is trusted, and finds users.
//!
//! As a proxy on this machine would reach it; the password of `ldap.bind_dn` is read as this user can read it.

use authentication::LdapMethod;

use super::checks::DIRECTORY;
use super::report::{Finding, Report};
use crate::configuration::{Authentication, Configuration};
use crate::output::with_causes;

/// Checks section `[ldap]`; without that method, or without clients, there is nothing to check.
pub async fn check(configuration: &Configuration, report: &mut Report) {
    let (access, section) = (&configuration.access, &configuration.ldap);
    if !access.uses(Authentication::Ldap) || !configuration.proxy.serves_clients {
        return report.leave_out(&[DIRECTORY]);
    }
    let settings = match section.settings(access.login_cache, access.stale) {
        Ok(settings) => settings,
        Err(error) => {
            let text = with_causes(&error);
            let (what, hint) = text.split_once("\nHint: ").unwrap_or((&text, "correct section [ldap]"));
            let what = format!("{what}; a proxy refuses to start");
            let finding = Finding::problem(section.url.clone(), what, hint.trim_end_matches('.')).about_set_up();
            return report.checked(DIRECTORY, "the settings cannot be used", vec![finding]);
        }
    };
    let probed = LdapMethod::probe(&settings).await;
    let (all, usable) = (probed.len(), probed.iter().filter(|(_, result)| result.is_ok()).count());
    let failed = probed.into_iter().filter_map(|(url, result)| Some((url, result.err()?)));
    let findings = failed.map(|(url, why)| {
        let mend = "start it, or correct section [ldap]; ldapsearch -H URL shows what it replies";
        if usable > 0 {
            Finding::warning(url.to_string(), format!("{why}; another server is used instead"), mend)
        } else {
            Finding::problem(url.to_string(), format!("{why}: no user of the directory can log in"), mend)
        }
    });
    report.checked(DIRECTORY, format!("{usable} of {all} can be used"), findings.map(Finding::about_set_up).collect());
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::report::Verdict;
    use super::*;

    async fn result(configuration: &Configuration) -> Option<(Verdict, String)> {
        let mut report = Report::default();
        check(configuration, &mut report).await;
        let (_, result) = report.results().find(|(check, _)| *check == DIRECTORY)?;
        let what = result.findings.iter().map(|finding| format!("{}: {}", finding.subject, finding.what));
        Some((result.verdict(), what.collect::<Vec<_>>().join("; ")))
    }

    #[tokio::test]
    async fn a_directory_that_is_not_there_or_not_described_is_a_problem() {
        let mut configuration = Configuration::default();
        assert_eq!(result(&configuration).await, None);
        configuration.access.authentication = vec![Authentication::Ldap];
        configuration.ldap.url = "ldap://127.0.0.1:1".to_owned();
        let (verdict, what) = result(&configuration).await.unwrap();
        assert_eq!(verdict, Verdict::Problem);
        assert!(what.contains("neither ldap.bind_pattern nor ldap.user_base is set; a proxy refuses"), "{what}");
        configuration.ldap.user_base = "dc=x".to_owned();
        let (verdict, what) = result(&configuration).await.unwrap();
        assert_eq!(verdict, Verdict::Problem);
        assert!(what.starts_with("ldap://127.0.0.1:1: ") && what.contains("no user of the directory"), "{what}");
    }
}
