//! Fetches: FetchResults with frames of one size, one call after the other.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use hs2::message::encode_call;
use hs2::tcli::{TFetchOrientation, TFetchResultsReq, TOperationHandle};

use super::connection::Buffer;
use super::session::Session;
use crate::frame;
use crate::prepared::Prepared;

/// The number of rows that a client asks for; the backend decides.
const MAX_ROWS: i64 = 1 << 20;
/// `fetchType` of rows.
const ROWS: i16 = 0;

/// A statement whose result is frames of one size, and the frame that each fetch must receive.
pub struct Fetches {
    operation: TOperationHandle,
    call: Prepared,
    expected: Prepared,
}

impl Fetches {
    /// More frames than a measurement fetches.
    pub const ENDLESS: u64 = 1 << 40;

    /// Executes the statement for so many frames in a session, and fetches the first of them.
    pub fn begin(session: &mut Session, bytes: usize, frames: u64, buffer: &mut Buffer) -> Result<Self> {
        let operation = session.execute(&format!("SELECT hot_path_frames({bytes}, {frames})"), buffer)?;
        let request = TFetchResultsReq {
            operation_handle: operation.clone(),
            orientation: TFetchOrientation::FETCH_NEXT,
            max_rows: MAX_ROWS,
            fetch_type: Some(ROWS),
        };
        let call = Prepared::framed(frame::METHOD, &encode_call(frame::METHOD, 0, &request)?);
        let expected = Prepared::new(frame::METHOD, frame::of_bytes(bytes)?);
        let mut fetches = Self { operation, call, expected };
        fetches.run(session, 1, buffer)?;
        Ok(fetches)
    }

    /// The length of a frame.
    pub fn bytes(&self) -> usize {
        self.expected.len()
    }

    /// Fetches this many frames and returns how long it took. Of every frame length, head and sequence number are checked; of
    /// the last one every byte, after the time was taken.
    pub fn run(&mut self, session: &mut Session, frames: usize, buffer: &mut Buffer) -> Result<Duration> {
        let begun = Instant::now();
        for fetched in 1..=frames {
            let (seqid, reply) = session.exchange(&mut self.call, buffer)?;
            ensure!(self.expected.has_head(reply, seqid), "a frame is not of {} bytes", self.expected.len());
            if fetched == frames {
                let took = begun.elapsed();
                ensure!(self.expected.is(reply, seqid), "a frame of {} bytes has other bytes", self.expected.len());
                return Ok(took);
            }
        }
        Ok(begun.elapsed())
    }

    /// Fetches the end of the result, after its last frame, and closes the operation.
    pub fn end(mut self, session: &mut Session, buffer: &mut Buffer) -> Result<()> {
        let (seqid, reply) = session.exchange(&mut self.call, buffer)?;
        let is_end = Prepared::new(frame::METHOD, frame::end()?).is(reply, seqid);
        ensure!(is_end, "a result does not end after its last frame");
        session.close_operation(self.operation, buffer)
    }
}
