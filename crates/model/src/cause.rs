//! Causes of errors. An error keeps its cause as a value, and its own text leaves it out; where the error is shown, [`chain`]
//! prints both.

use std::error::Error;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// The cause of an error: an error of the system or of a library, or a text. Clones share it, and two are equal if they
/// print the same.
#[derive(Clone)]
pub struct Cause(Arc<dyn Error + Send + Sync>);

// `Cause` does not implement `Error`: this conversion would then overlap with `From<T> for T`.
impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for Cause {
    fn from(error: E) -> Self {
        Self(error.into().into())
    }
}

impl Deref for Cause {
    type Target = dyn Error + Send + Sync;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        chain(&*self.0).fmt(f)
    }
}

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl PartialEq for Cause {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Eq for Cause {}

/// Prints an error with its causes, separated by colons. A cause that the text already contains is left out: many libraries
/// print theirs themselves.
pub fn chain(error: &(dyn Error + 'static)) -> impl fmt::Display {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let message = next.to_string();
        if !text.contains(&message) {
            text = format!("{text}: {message}");
        }
        cause = next.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum Failure {
        #[error("could not read x")]
        Read(#[source] Cause),
        #[error("could not start: {0}")]
        Start(#[source] Box<Failure>),
    }

    #[test]
    fn a_chain_prints_each_cause_once() {
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        let failure = Failure::Read(denied().into());
        assert_eq!(failure.to_string(), "could not read x");
        assert_eq!(chain(&failure).to_string(), "could not read x: permission denied");
        assert_eq!(
            chain(&Failure::Start(Box::new(failure))).to_string(),
            "could not start: could not read x: permission denied"
        );
        assert!(Cause::from(denied()).is::<io::Error>(), "the cause keeps its type");
        assert_eq!(Cause::from("permission denied"), Cause::from(denied()));
    }
}
