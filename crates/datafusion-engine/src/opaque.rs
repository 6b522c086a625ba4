//! A wrapper that hides a type from the compiler's `Send` and `Sync` proofs.
//!
//! A session's context holds plans and expressions, a graph of some hundred types. For each method of an `async_trait`
//! the compiler proves that its future is `Send` and traverses that graph, which takes most of this crate's build time
//! (apache/datafusion#13814). Behind a trait object the graph is traversed once, where the object is created.

use std::fmt;
use std::ops::Deref;

/// A shared value, `Send` and `Sync` by its trait object alone.
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
    /// Wraps a value.
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
        // The object's own method: the box implements the trait, too.
        (*self.0).inner()
    }
}
