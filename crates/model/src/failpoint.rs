//! Failpoints: named points at which a test can stop or kill the process.
//!
//! A name is a dotted string, declared as a constant in the `failpoints` module of its crate. In the dev profile
//! crate `fail` decides what happens there; in release the macro does nothing.

#[cfg(debug_assertions)]
#[doc(hidden)]
pub use fail;

/// Passes the failpoint of this name: without effect unless a test has set an action for it.
#[macro_export]
macro_rules! failpoint {
    ($name:expr) => {{
        #[cfg(debug_assertions)]
        {
            $crate::failpoint::fail::fail_point!($name);
        }
        // Uses the name, so that a release build has no warnings.
        #[cfg(not(debug_assertions))]
        {
            let _: &str = $name;
        }
    }};
}
