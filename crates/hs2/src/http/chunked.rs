//! A request's body in chunks.

use std::time::Duration;

use super::text_response::TextResponse;
use crate::error::WireError;
use crate::wire::Wire;

/// The longest line before a chunk.
const MAX_CHUNK_LINE_BYTES: usize = 64;

/// The body of the current request, as far as it was received.
#[derive(Debug, Default)]
pub(super) struct ChunkedBody {
    data: Vec<u8>,
}

impl ChunkedBody {
    /// Receives the rest of the body. Cancel safe.
    pub(super) async fn read(
        &mut self,
        wire: &mut Wire,
        limit: usize,
        deadline: Duration,
    ) -> Result<Result<Vec<u8>, TextResponse>, WireError> {
        loop {
            // Takes all chunks that have arrived, and then removes them at once: chunks of one byte cost no more
            // copies than others.
            let mut at = 0;
            let wanted = loop {
                match Chunk::parse(&wire.pending[at..]) {
                    Ok(Chunk { data, .. }) if data.len() > limit.saturating_sub(self.data.len()) => {
                        return Ok(Err(TextResponse::too_long(limit)));
                    }
                    Ok(Chunk { end, .. }) if wire.pending.len() - at < end => break end,
                    Ok(Chunk { data, end }) => {
                        let last = data.is_empty();
                        self.data.extend_from_slice(&wire.pending[at + data.start..at + data.end]);
                        at += end;
                        if last {
                            wire.discard(at);
                            return Ok(Ok(std::mem::take(&mut self.data)));
                        }
                    }
                    Err(Unfinished::Line) => break wire.pending.len() - at + 1,
                    Err(Unfinished::Malformed) => {
                        return Ok(Err(TextResponse::bad_request("malformed chunk")));
                    }
                }
            };
            // A chunk is taken whole or not at all, so that the wait is cancel safe.
            wire.discard_some(at);
            wire.fill_growing(wanted, self.data.len() + wanted, limit, deadline).await?;
        }
    }
}

/// The range of a chunk's data, and the chunk's end, from its first byte.
struct Chunk {
    data: std::ops::Range<usize>,
    end: usize,
}

/// Why the line before a chunk cannot be parsed.
enum Unfinished {
    /// It is incomplete.
    Line,
    /// It is invalid.
    Malformed,
}

impl Chunk {
    /// Parses the line before a chunk. The chunk's data need not have arrived.
    fn parse(bytes: &[u8]) -> Result<Self, Unfinished> {
        let line = match bytes[..bytes.len().min(MAX_CHUNK_LINE_BYTES + 2)].windows(2).position(|pair| pair == b"\r\n")
        {
            Some(end) => &bytes[..end],
            None if bytes.len() > MAX_CHUNK_LINE_BYTES => return Err(Unfinished::Malformed),
            None => return Err(Unfinished::Line),
        };
        let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
        let size = std::str::from_utf8(digits).ok().and_then(|digits| usize::from_str_radix(digits.trim(), 16).ok());
        let start = line.len() + 2;
        let data_end = size.and_then(|size| start.checked_add(size)).ok_or(Unfinished::Malformed)?;
        let end = data_end.checked_add(2).ok_or(Unfinished::Malformed)?;
        Ok(Self { data: start..data_end, end })
    }
}
