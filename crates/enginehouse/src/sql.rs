//! The SQL client: `enginehouse sql`, and the tour.

pub mod connection;
pub mod interrupt;
pub mod print;
pub mod repl;
pub mod runner;
pub mod script;
pub mod url;
