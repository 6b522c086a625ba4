//! Named points at which a test can stop or kill the process.
//!
//! A point is a dotted name, declared as a constant in the `failpoints` module of the crate that passes it. In the
//! dev profile it asks crate `fail` what to do there; in release the macro does nothing.

#[cfg(debug_assertions)]
#[doc(hidden)]
pub use fail;

/// Passes the failpoint of the given name: nothing happens unless a test has set an action for it.
#[macro_export]
macro_rules! failpoint {
    ($name:expr) => {{
        #[cfg(debug_assertions)]
        {
            $crate::failpoint::fail::fail_point!($name);
        }
        // The name stays used, so that a release build has no warnings.
        #[cfg(not(debug_assertions))]
        {
            let _: &str = $name;
        }
    }};
}
