//! The report as text and as JSON.

use serde_json::json;

use super::report::{Report, Severity, Verdict};

/// Plain text: the heading, one line for each check below its group, its findings with their fixes below it, and a line with
/// counts.
pub fn text(report: &Report, heading: &str) -> String {
    let wide = |texts: Vec<usize>| texts.into_iter().max().unwrap_or_default();
    let names = wide(report.results().map(|(check, _)| check.name.chars().count()).collect());
    let verdicts = wide(report.results().map(|(_, result)| result.verdict().as_str().len()).collect());
    let mut lines = vec![heading.to_owned()];
    let mut group = "";
    for (check, result) in report.results() {
        if check.group != group {
            group = check.group;
            lines.extend([String::new(), group.to_owned()]);
        }
        let verdict = result.verdict().as_str();
        lines.push(format!("  {verdict:<verdicts$}  {:<names$}  {}", check.name, result.summary).trim_end().to_owned());
        for finding in &result.findings {
            let mark = match finding.severity {
                Severity::Problem => "problem",
                Severity::Warning => "warning",
            };
            lines.push(format!("    {mark}: {}: {}", finding.subject, finding.what));
            lines.push(format!("      fix: {}", finding.mend));
        }
    }
    lines.extend([String::new(), report.tally().line()]);
    lines.join("\n")
}

/// One JSON object.
pub fn json(report: &Report, heading: &str) -> String {
    let tally = report.tally();
    let checks: Vec<serde_json::Value> = report
        .results()
        .map(|(check, result)| {
            let findings: Vec<serde_json::Value> = result
                .findings
                .iter()
                .map(|finding| {
                    let severity = if finding.severity == Severity::Problem { "problem" } else { "warning" };
                    json!({"severity": severity, "subject": finding.subject, "what": finding.what, "mend": finding.mend})
                })
                .collect();
            let verdict = match result.verdict() {
                Verdict::Skipped => "not_looked_at",
                other => other.as_str(),
            };
            json!({
                "group": check.group, "check": check.name, "verdict": verdict, "said": result.summary,
                "findings": findings,
            })
        })
        .collect();
    let whole = json!({
        "looked_at": heading, "well": tally.problems == 0, "problems": tally.problems, "warnings": tally.warnings,
        "checks_done": tally.checks, "not_looked_at": tally.skipped, "summary": tally.line(), "checks": checks,
    });
    serde_json::to_string_pretty(&whole).unwrap_or_else(|error| format!("{{\"error\": \"{error}\"}}"))
}

#[cfg(test)]
mod tests {
    use super::super::checks::{ALL, DISK};
    use super::super::report::Finding;
    use super::*;

    #[test]
    fn findings_are_printed_below_their_check_with_their_fix() {
        let mut report = Report::default();
        for check in ALL {
            report.checked(check, "fine", Vec::new());
        }
        report.checked(
            DISK,
            "1 MiB is free",
            vec![Finding::problem("/engines", "the disk is full", "delete something")],
        );
        let text = text(&report, "configuration a.toml");
        assert!(text.starts_with("configuration a.toml\n\nzookeeper\n  ok       servers          fine\n"), "{text}");
        let expected = "  problem  disk             1 MiB is free\n    problem: /engines: the disk is full\n      fix: delete something\n";
        assert!(text.contains(expected), "{text}");
        assert!(text.ends_with("\n\n1 problem in 49 checks"), "{text}");
        let value: serde_json::Value = serde_json::from_str(&json(&report, "x")).unwrap_or_default();
        assert_eq!((value["problems"].as_u64(), value["well"].as_bool()), (Some(1), Some(false)));
        let disk = ALL.iter().position(|check| *check == DISK).unwrap_or_default();
        assert_eq!(value["checks"][disk]["findings"][0]["mend"], "delete something");
    }
}
