//! The body of a response: a short text, or the reply of a call, which arrives in pieces.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};

use super::exchange::Exchange;

pub(super) enum ReplyBody {
    /// A complete body.
    Whole(Bytes),
    /// A reply with this many more bytes, as they are delivered.
    Delivered { exchange: Arc<Exchange>, left: usize },
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = match &mut *self {
            Self::Whole(bytes) if bytes.is_empty() => return Poll::Ready(None),
            Self::Whole(bytes) => std::mem::take(bytes),
            Self::Delivered { left: 0, .. } => return Poll::Ready(None),
            Self::Delivered { exchange, left } => match exchange.take_piece() {
                Some(piece) => {
                    *left = left.saturating_sub(piece.len());
                    piece
                }
                // Polled again by the task that delivers the next piece.
                None => return Poll::Pending,
            },
        };
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left() as u64)
    }
}

impl ReplyBody {
    fn left(&self) -> usize {
        match self {
            Self::Whole(bytes) => bytes.len(),
            Self::Delivered { left, .. } => *left,
        }
    }
}

/// A response in plain text.
pub(super) fn text(status: StatusCode, text: String) -> Response<ReplyBody> {
    let mut response = Response::new(ReplyBody::Whole(Bytes::from(text + "\n")));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
