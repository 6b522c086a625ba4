//! Resource values: golden JSON, the matrix of promotions, arithmetic, comparison, request policies, and properties of each
//! kind.
#![allow(clippy::unwrap_used, clippy::panic)]

mod arithmetic;
mod comparison;
mod json;
mod policies;
mod promotions;
mod properties;
mod sample;
