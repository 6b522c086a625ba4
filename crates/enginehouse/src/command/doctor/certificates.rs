//! Check of the certificate that proxies present to clients.

use model::clock::utc;
use model::span;

use super::checks::CERTIFICATES;
use super::report::{Finding, Report};
use super::target::Target;
use crate::listener_tls::CertificateFiles;
use crate::output::with_causes;

const DAY_MS: i64 = 86_400_000;
/// The remaining days from which on a certificate is a warning, and from which on the warning says that it is urgent.
const WARN_DAYS: i64 = 30;
const URGENT_DAYS: i64 = 7;
/// The remaining days from which on it is a problem.
const PROBLEM_DAYS: i64 = 1;

/// Checks the files of section `[tls]`, as this user can read them on this machine.
pub fn check(target: &Target, report: &mut Report) {
    let section = &target.configuration.tls;
    if !section.is_on() || !target.configuration.proxy.serves_clients {
        return report.leave_out(&[CERTIFICATES]);
    }
    let file = section.certificate_file.display().to_string();
    let mend =
        "replace tls.certificate_file and tls.key_file; proxies read them again by themselves, and at once on SIGHUP";
    match CertificateFiles::new(section).read_at_any_time() {
        Err(error) => {
            let text = with_causes(&error);
            let (what, hint) = text.split_once("\nHint: ").unwrap_or((&text, mend));
            let finding = Finding::problem(file, what, hint.trim_end_matches('.')).about_set_up();
            report.checked(CERTIFICATES, "the files cannot be used", vec![finding]);
        }
        Ok(certified) => {
            let (validity, now_ms) = (certified.validity(), target.clock.wall_ms());
            let summary = format!("{file} is valid until {}", utc(validity.not_after_ms));
            let finding = if now_ms < validity.not_before_ms {
                let what = format!("it is not valid before {}", utc(validity.not_before_ms));
                Some(Finding::problem(file, what, "check the clock of this machine, and the certificate"))
            } else {
                expiry(file, validity.not_after_ms, now_ms, mend)
            };
            report.checked(CERTIFICATES, summary, finding.map(Finding::about_set_up).into_iter().collect());
        }
    }
}

fn expiry(file: String, not_after_ms: i64, now_ms: i64, mend: &str) -> Option<Finding> {
    let left_ms = not_after_ms - now_ms;
    let at = utc(not_after_ms);
    if left_ms < 0 {
        return Some(Finding::problem(file, format!("it expired at {at}: clients refuse it"), mend));
    }
    let left = span::age(std::time::Duration::from_millis(left_ms.unsigned_abs()));
    let what = format!("it expires at {at}, in {left}");
    let days = left_ms / DAY_MS;
    if days < PROBLEM_DAYS {
        Some(Finding::problem(file, what, mend))
    } else if days < URGENT_DAYS {
        Some(Finding::warning(file, format!("{what}: less than {URGENT_DAYS} days"), mend))
    } else if days < WARN_DAYS {
        Some(Finding::warning(file, what, mend))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::Severity;
    use super::*;

    #[test]
    fn a_certificate_is_reported_30_7_and_1_days_before_it_expires() {
        let found = |left_ms: i64| {
            expiry("f".to_owned(), 100 * DAY_MS, 100 * DAY_MS - left_ms, "renew it")
                .map(|finding| (finding.severity, finding.what))
        };
        assert_eq!(found(30 * DAY_MS), None);
        let (severity, what) = found(30 * DAY_MS - 1).unwrap_or((Severity::Problem, String::new()));
        assert!(
            severity == Severity::Warning && what.contains("expires at 1970-04-11") && what.contains("in 29 d"),
            "{what}"
        );
        let urgent = found(7 * DAY_MS - 1);
        assert!(urgent.is_some_and(|(severity, what)| severity == Severity::Warning && what.ends_with("7 days")));
        let (severity, _) = found(7 * DAY_MS).unwrap_or((Severity::Problem, String::new()));
        assert_eq!(severity, Severity::Warning);
        assert!(found(DAY_MS - 1).is_some_and(|(severity, _)| severity == Severity::Problem));
        assert!(found(-1).is_some_and(|(severity, what)| severity == Severity::Problem && what.contains("expired at")));
    }
}
