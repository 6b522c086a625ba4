//! What the checks of the whole repository have in common: its files, its packages, its pages, its program.
//!
//! The checks themselves are in `tests/*.rs`. They read the files of the checkout, so they hold for what stands there
//! now, committed or not; what is ignored by git is not looked at. A page that a check compares with the code has its
//! facts in tables, which [`page`] reads: prose may be written as it likes, a table may not go stale.

pub mod package;
pub mod page;
pub mod program;
pub mod repository;
