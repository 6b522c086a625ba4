//! Fetches: FetchResults with frames of one size, one call after the other.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use hs2::message::encode_call;
use hs2::tcli::{TFetchOrientation, TFetchResultsReq};

use super::connection::Buffer;
use super::session::Session;
use crate::frame;
use crate::prepared::Prepared;

/// More frames than a run fetches.
const FRAMES: u64 = 1 << 40;
/// The number of rows that a client asks for; the backend decides.
const MAX_ROWS: i64 = 1 << 20;
/// `fetchType` of rows.
const ROWS: i16 = 0;

/// A statement whose result is frames of one size, and the frame that each fetch must receive.
pub struct Fetches {
    call: Prepared,
    expected: Prepared,
}

impl Fetches {
    /// Executes the statement in a session, and fetches its first frame.
    pub fn begin(session: &mut Session, bytes: usize, buffer: &mut Buffer) -> Result<Self> {
        let operation_handle = session.execute(&format!("SELECT hot_path_frames({bytes}, {FRAMES})"), buffer)?;
        let request = TFetchResultsReq {
            operation_handle,
            orientation: TFetchOrientation::FETCH_NEXT,
            max_rows: MAX_ROWS,
            fetch_type: Some(ROWS),
        };
        let call = Prepared::framed(frame::METHOD, &encode_call(frame::METHOD, 0, &request)?);
        let expected = Prepared::new(frame::METHOD, frame::of_bytes(bytes)?);
        let mut fetches = Self { call, expected };
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
}
