//! Check of method `jwt`: that the keys of the issuer can be read.
//!
//! As a proxy on this machine would read them.

use authentication::JwtMethod;

use super::checks::TOKENS;
use super::report::{Finding, Report};
use crate::configuration::{Authentication, Configuration};
use crate::output::with_causes;

/// Checks section `[jwt]`; without that method, or without clients, there is nothing to check.
pub async fn check(configuration: &Configuration, report: &mut Report) {
    let (access, section) = (&configuration.access, &configuration.jwt);
    if !access.uses(Authentication::Jwt) || !configuration.proxy.serves_clients {
        return report.leave_out(&[TOKENS]);
    }
    let subject = match section.jwks_url.as_str() {
        "" => section.jwks_file.display().to_string(),
        url => url.to_owned(),
    };
    let settings = match section.settings() {
        Ok(settings) => settings,
        Err(error) => {
            let text = with_causes(&error);
            let (what, hint) = text.split_once("\nHint: ").unwrap_or((&text, "correct section [jwt]"));
            let what = format!("{what}; a proxy refuses to start");
            let finding = Finding::problem(subject, what, hint.trim_end_matches('.')).about_set_up();
            return report.checked(TOKENS, "the settings cannot be used", vec![finding]);
        }
    };
    let (summary, finding) = match JwtMethod::probe(&settings).await {
        Ok(keys) => (format!("{keys} {} of {}", if keys == 1 { "key" } else { "keys" }, section.issuer), None),
        Err(error) => {
            let mend = "start the issuer, or correct section [jwt]; curl URL shows what it replies";
            let what = format!("{error}: no user with a new token can log in");
            ("the keys cannot be read".to_owned(), Some(Finding::problem(subject, what, mend).about_set_up()))
        }
    };
    report.checked(TOKENS, summary, finding.into_iter().collect());
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::report::Verdict;
    use super::*;

    async fn result(configuration: &Configuration) -> Option<(Verdict, String)> {
        let mut report = Report::default();
        check(configuration, &mut report).await;
        let (_, result) = report.results().find(|(check, _)| *check == TOKENS)?;
        let what = result.findings.iter().map(|finding| format!("{}: {}", finding.subject, finding.what));
        Some((result.verdict(), what.collect::<Vec<_>>().join("; ")))
    }

    #[tokio::test]
    async fn keys_that_cannot_be_read_are_a_problem() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.json");
        let mut configuration = Configuration::default();
        assert_eq!(result(&configuration).await, None);
        configuration.access.authentication = vec![Authentication::Jwt];
        configuration.jwt.jwks_url = "http://127.0.0.1:1/jwks".to_owned();
        configuration.jwt.ca_file.clone_from(&path);
        let (verdict, what) = result(&configuration).await.unwrap();
        assert_eq!(verdict, Verdict::Problem);
        assert!(what.contains("jwt.ca_file") && what.ends_with("a proxy refuses to start"), "{what}");
        configuration.jwt.jwks_url.clear();
        configuration.jwt.jwks_file.clone_from(&path);
        let (verdict, what) = result(&configuration).await.unwrap();
        assert_eq!(verdict, Verdict::Problem);
        assert!(what.contains("No such file") && what.contains("no user with a new token"), "{what}");
        std::fs::write(&path, r#"{"keys": [{"kty": "RSA", "n": "AQAB", "e": "AQAB"}]}"#).unwrap();
        assert_eq!(result(&configuration).await, Some((Verdict::Passed, String::new())));
    }
}
