//! Readers for checks of the whole repository: its files, packages, pages, Rust sources and program. Also, for
//! tests of the crates, [`resident_set`], which measures memory, and [`certificate`].
//!
//! The checks are in `tests/*.rs`. They read the files of the checkout, committed or not, except those that git ignores.
//! Facts that a check compares with the code are in tables of the pages, which [`page`] reads; prose is not checked.

pub mod certificate;
pub mod imports;
pub mod libraries;
pub mod output;
pub mod package;
pub mod page;
pub mod program;
pub mod repository;
pub mod resident_set;
pub mod rust;
