//! A value whose type the compiler needn't look into to know that threads may share it.
//!
//! A session's context holds plans and expressions, a graph of some hundred types. Every method of an `async_trait` proves
//! anew that its future may go to another thread, and looks through that graph each time: most of this crate's build
//! time (apache/datafusion#13814). Behind a trait object it is looked through once, where the object is made.

use std::fmt;
use std::ops::Deref;

/// A shared value, known as `Send` and `Sync` by its trait object alone.
pub struct Opaque<T: 'static>(Box<dyn Inner<T>>);

trait Inner<T>: Send + Sync {
    fn inner(&self) -> &T;
}

impl<T: Send + Sync> Inner<T> for T {
    fn inner(&self) -> &T {
        self
    }
}

impl<T: Send + Sync> Opaque<T> {
    /// Puts the value behind its object.
    pub fn new(value: T) -> Self {
        Self(Box::new(value))
    }
}

impl<T: fmt::Debug> fmt::Debug for Opaque<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> Deref for Opaque<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // The object's own method: the box, too, is something that may be inner.
        (*self.0).inner()
    }
}
