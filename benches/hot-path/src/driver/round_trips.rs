//! Round trips: GetOperationStatus of a statement that has finished, one call after the other.

use std::time::Instant;

use anyhow::{Result, bail, ensure};
use hs2::Method;
use hs2::message::{decode_reply, encode_call};
use hs2::tcli::{TGetOperationStatusResp, TOperationState};

use super::connection::Buffer;
use super::endpoint::Endpoint;
use super::session::{Session, status_request};
use crate::prepared::Prepared;

/// The statement whose status is asked for.
const STATEMENT: &str = "SELECT hot_path_frames(1000, 1)";
const METHOD: &str = Method::GetOperationStatus.name();

/// A session with a statement, and the reply that each call must receive.
pub struct RoundTrips {
    session: Session,
    call: Prepared,
    expected: Prepared,
}

impl RoundTrips {
    /// Opens the session and makes the first call, whose reply is decoded.
    pub fn open(endpoint: &Endpoint, number: usize, user: &str, buffer: &mut Buffer) -> Result<Self> {
        let mut session = Session::open(endpoint, number, user, buffer)?;
        let operation = session.execute(STATEMENT, buffer)?;
        let mut call = Prepared::framed(METHOD, &encode_call(METHOD, 0, &status_request(&operation))?);
        let (_, reply) = session.exchange(&mut call, buffer)?;
        let decoded: TGetOperationStatusResp = decode_reply(reply)?;
        ensure!(decoded.operation_state == Some(TOperationState::FINISHED_STATE), "the statement has not finished");
        let expected = Prepared::new(METHOD, reply.to_vec());
        Ok(Self { session, call, expected })
    }

    /// Makes this many calls, and appends the time of each in nanoseconds. Every reply is compared with the first one.
    pub fn run(&mut self, calls: usize, times: &mut Vec<u64>, buffer: &mut Buffer) -> Result<()> {
        times.reserve(calls);
        for _ in 0..calls {
            let begun = Instant::now();
            let (seqid, reply) = self.session.exchange(&mut self.call, buffer)?;
            let time = begun.elapsed();
            if !self.expected.is(reply, seqid) {
                let decoded = decode_reply::<TGetOperationStatusResp>(reply);
                bail!("the reply to {METHOD} is not the expected one: {decoded:?}");
            }
            times.push(time.as_nanos() as u64);
        }
        Ok(())
    }

    /// Closes its session. An error if a reply is not as expected or does not come in time.
    pub fn close(self, buffer: &mut Buffer) -> Result<()> {
        self.session.close(buffer)
    }
}
