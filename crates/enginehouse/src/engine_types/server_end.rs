//! The end of a server that its agent started: an error that says how it ended, what its log names as the cause, and whether
//! another start is pointless.

use std::error::Error;
use std::fmt;
use std::process::ExitStatus;

use model::spark_start::Hopeless;

use super::cause::cause;

#[derive(Debug)]
pub struct ServerEnd {
    reason: String,
    hopeless: Option<&'static Hopeless>,
}

impl ServerEnd {
    /// `status` is an error if it was lost. `log` is the end of the server's log.
    pub fn new(
        name: &str,
        status: &Result<ExitStatus, String>,
        log: &str,
        hopeless: fn(ExitStatus, &str) -> Option<&'static Hopeless>,
    ) -> Self {
        let cause = cause(log).map(|cause| format!(": {cause}")).unwrap_or_default();
        let hopeless = status.as_ref().ok().and_then(|status| hopeless(*status, log));
        Self { reason: format!("{name} {}{cause}", describe(status)), hopeless }
    }
}

/// How it ended: a predicate.
pub fn describe(status: &Result<ExitStatus, String>) -> String {
    match status {
        Ok(status) => format!("ended with {status}"),
        Err(error) => format!("was lost: {error}"),
    }
}

impl fmt::Display for ServerEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        self.hopeless.map_or(Ok(()), |hopeless| write!(f, "; {}", hopeless.remedy))
    }
}

impl Error for ServerEnd {}

/// Whether a start failed by an end after which another one is pointless.
pub fn is_hopeless(error: &(dyn Error + 'static)) -> bool {
    std::iter::successors(Some(error), |&error| error.source())
        .filter_map(|cause| cause.downcast_ref::<ServerEnd>())
        .any(|end| end.hopeless.is_some())
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use model::cause::Cause;
    use model::spark_start::HOPELESS;

    use super::*;

    #[test]
    fn the_reason_has_the_cause_and_the_remedy_of_a_hopeless_one() {
        let log =
            "x\nException in thread \"main\" a.b.FirstException: 1\n\tat a.b\nCaused by: a.b.SecondException: 2\n";
        let judge = |status: ExitStatus, _: &str| (status.code() == Some(7)).then_some(&HOPELESS[0]);
        for (code, expected) in [
            (7, format!("Spark ended with exit status: 7: a.b.SecondException: 2; {}", HOPELESS[0].remedy)),
            (1, "Spark ended with exit status: 1: a.b.SecondException: 2".to_owned()),
        ] {
            let end = ServerEnd::new("Spark", &Ok(ExitStatus::from_raw(code << 8)), log, judge);
            assert_eq!(end.to_string(), expected);
            let error = engine_agent::engine::EngineAgentError::EndedAtStart(Cause::from(end));
            assert_eq!(is_hopeless(&error), code == 7, "{error:?}");
            let shown = model::cause::chain(&error).to_string();
            assert_eq!(shown, format!("the engine did not start: it ended: {expected}"));
        }
        let lost = ServerEnd::new("Spark", &Err("no child".to_owned()), "", judge);
        assert_eq!(lost.to_string(), "Spark was lost: no child");
    }
}
