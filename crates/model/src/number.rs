//! The counters that order everything: generation, incarnation, epoch.
//!
//! All are positive 64-bit integers that never go back. Generations and incarnations are drawn from the one counter
//! of the database's `catalog` row, so an incarnation can be compared with a generation.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! counter {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub i64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl $name {
            /// The number as the database stores it.
            pub const fn get(self) -> i64 {
                self.0
            }

            /// The number after this one.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }
    };
}

counter! {
    /// The version of the catalog, or the version of one object in it: the number that its last change drew.
    Generation
}
counter! {
    /// Which engine of a slot is meant. Never used twice, not even after DROP and CREATE of the same names.
    Incarnation
}
counter! {
    /// The fencing token of a master. Raised in the database by each new master before its first write.
    Epoch
}
