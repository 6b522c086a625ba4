//! Why a request is queued or rejected, and the error that its user reads.

use model::error::{ErrorKind, UserError};
use model::ledger::{Refusal, Shortage};
use model::text::as_fragment;

use super::headroom::Shortages;
use super::request::Request;
use model::fit::Oversized;

/// A request that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queued<'a> {
    pub request: &'a Request,
    pub cause: Cause<'a>,
    /// Its rank among the requests that are queued for its pool, from 1.
    pub position: usize,
}

/// Why a request is queued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause<'a> {
    Short(Shortages),
    /// Behind an earlier request of its tenant that is short of a scope which this one is charged to.
    Behind {
        request: &'a Request,
        shortage: Shortage,
    },
    /// It would borrow what this request waits for.
    Yields {
        request: &'a Request,
    },
    /// By a closed scope, or because its reservation is in another state.
    Refused(Refusal),
}

/// A request that can never fit with the current limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected<'a> {
    pub request: &'a Request,
    pub why: Impossible,
}

/// Why a request can never fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Impossible {
    /// Above a limit. Not retryable.
    Short(Shortage),
    Oversized(Oversized),
}

impl Queued<'_> {
    /// The shortage that is reported; `None` if only nodes are short, or none is.
    pub fn shortage(&self) -> Option<&Shortage> {
        match &self.cause {
            Cause::Short(shortages) => shortages.amounts.first(),
            Cause::Behind { shortage, .. } => Some(shortage),
            Cause::Yields { .. } | Cause::Refused(_) => None,
        }
    }

    /// The error of a request that does not wait. `remedy` is what raises the limit that is short.
    pub fn error(&self, remedy: Option<&str>) -> UserError {
        let (reservation, position) = (&self.request.reservation, Some(self.position));
        match &self.cause {
            Cause::Short(Shortages { amounts, nodes }) => match (amounts.first(), nodes) {
                (Some(shortage), _) => shortage.error(reservation, remedy, position),
                (None, Some(full)) => full.error(reservation, position),
                (None, None) => UserError::internal("a request was queued without a shortage"),
            },
            Cause::Behind { request, shortage } => {
                let detail = format!(
                    "Request \"{}\" of the same tenant has waited longer for {} of {} ({}, {}).",
                    request.id(),
                    shortage.component.noun(),
                    shortage.scope,
                    shortage.word(),
                    retryable(position),
                );
                waiting(self.request).detail(detail).with_error_code(shortage.code())
            }
            Cause::Yields { .. } => waiting(self.request).detail(yields(self.request, position)),
            Cause::Refused(refusal) => refusal.error(reservation, remedy),
        }
    }

    /// Why it is queued, for SHOW: `queued at position 3: tenant "t_a" on resource pool "rp_1": asked 1, left 0 of 18
    /// (TENANT_CPU, retryable)`.
    pub fn reason(&self) -> String {
        let detail = match &self.cause {
            Cause::Short(Shortages { amounts, nodes }) => match (amounts.first(), nodes) {
                (Some(shortage), _) => shortage.detail(None),
                (None, Some(full)) => full.detail(self.request.reservation.scopes.pool_name(), None),
                (None, None) => String::new(),
            },
            Cause::Behind { request, shortage } => format!(
                "Waits behind engine {}, which has waited longer for {} of {}",
                request.id(),
                shortage.component.noun(),
                shortage.scope
            ),
            Cause::Yields { .. } => yields(self.request, None),
            Cause::Refused(refusal) => {
                let error = refusal.error(&self.request.reservation, None);
                error
                    .detail
                    .map_or(error.message.clone(), |detail| format!("{}: {}", error.message, as_fragment(&detail)))
            }
        };
        format!("queued at position {}: {}", self.position, as_fragment(&detail))
    }
}

impl Rejected<'_> {
    /// The error of the request. `remedy` is what raises the limit that is too low.
    pub fn error(&self, remedy: Option<&str>) -> UserError {
        match &self.why {
            Impossible::Short(shortage) => shortage.error(&self.request.reservation, remedy, None),
            Impossible::Oversized(oversized) => oversized.error(&self.request.reservation),
        }
    }

    /// Why it can never fit, for SHOW: `cannot start: tenant "t_a" on resource pool "rp_1": asked 6, left 5 of 5 (TENANT_CPU,
    /// not retryable)`.
    pub fn reason(&self) -> String {
        format!("cannot start: {}", self.limit())
    }

    /// What it exceeds: a fragment of a sentence.
    pub fn limit(&self) -> String {
        as_fragment(&self.error(None).detail.unwrap_or_default())
    }
}

/// `retryable, position 3`
fn retryable(position: Option<usize>) -> String {
    position.map_or_else(|| "retryable".to_owned(), |position| format!("retryable, position {position}"))
}

fn yields(request: &Request, position: Option<usize>) -> String {
    format!(
        "Resource pool \"{}\" is short for a request that comes first, and this one would borrow ({}).",
        request.reservation.scopes.pool_name(),
        retryable(position),
    )
}

fn waiting(request: &Request) -> UserError {
    UserError::new(
        ErrorKind::InsufficientResources,
        format!("other requests come before {}", request.reservation.what()),
    )
    .hint("Retry later, or wait for the capacity.")
}
