//! Tests of scaling: the table of the design, properties of random groups, and mutants that both must detect.
#![allow(clippy::unwrap_used, clippy::panic)]

mod groups;
mod mutants;
mod properties;
mod shared_maximum;
mod table;

use super::{Group, Scaled};

/// The kind of a slot (e, p or q) and its number.
type Id = (char, u32);

/// The function under test: the one of the design, or a mutant.
type Scale<'a> = &'a dyn Fn(&Group<Id>) -> Scaled<Id>;
