//! A client's session: the calls around what is measured, each with its status checked.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use hs2::answer::Answer;
use hs2::message::{decode_reply, encode_call};
use hs2::tcli::{
    TCloseOperationReq, TCloseOperationResp, TCloseSessionReq, TCloseSessionResp, TExecuteStatementReq,
    TExecuteStatementResp, TGetOperationStatusReq, TGetOperationStatusResp, TOpenSessionReq, TOpenSessionResp,
    TOperationHandle, TOperationState, TSessionHandle,
};
use hs2::{Method, protocol, status};

use super::connection::{Buffer, Connection};
use super::endpoint::Endpoint;
use crate::prepared::Prepared;
use crate::waiting;

/// How long a statement may take: the first one of a tenant waits for an engine.
const STATEMENT_DEADLINE: Duration = Duration::from_mins(3);

/// A session with a connection of its own.
pub struct Session {
    connection: Connection,
    handle: TSessionHandle,
    seqid: i32,
}

impl Session {
    /// Connects as the client with that number, logs in, and opens a session.
    pub fn open(endpoint: &Endpoint, number: usize, user: &str, buffer: &mut Buffer) -> Result<Self> {
        let mut connection = Connection::open(endpoint, number, user)?;
        let request = TOpenSessionReq {
            client_protocol: protocol::NEWEST,
            username: Some(user.to_owned()),
            password: None,
            configuration: Some(BTreeMap::new()),
        };
        let call = encode_call(Method::OpenSession.name(), 1, &request)?;
        let opened: TOpenSessionResp = call_on(&mut connection, Method::OpenSession, &call, buffer)?;
        let handle = opened.session_handle.context("a session without a handle")?;
        Ok(Self { connection, handle, seqid: 1 })
    }

    /// Runs a statement to its end. Returns its operation, which stays open.
    pub fn execute(&mut self, statement: &str, buffer: &mut Buffer) -> Result<TOperationHandle> {
        let request = TExecuteStatementReq {
            session_handle: self.handle.clone(),
            statement: statement.to_owned(),
            conf_overlay: None,
            run_async: Some(true),
            query_timeout: None,
        };
        let call = encode_call(Method::ExecuteStatement.name(), self.next(), &request)?;
        let started: TExecuteStatementResp = call_on(&mut self.connection, Method::ExecuteStatement, &call, buffer)
            .with_context(|| statement.to_owned())?;
        let operation = started.operation_handle.context("a statement without an operation")?;
        waiting::until(statement, STATEMENT_DEADLINE, || {
            let polled = self.status(&operation, buffer)?;
            match polled.operation_state {
                Some(TOperationState::FINISHED_STATE) => Ok(Some(())),
                Some(
                    TOperationState::INITIALIZED_STATE
                    | TOperationState::PENDING_STATE
                    | TOperationState::RUNNING_STATE,
                ) => Ok(None),
                state => {
                    let reason = polled.error_message.unwrap_or_else(|| format!("its state is {state:?}"));
                    bail!("{statement}: {reason}")
                }
            }
        })?;
        Ok(operation)
    }

    fn status(&mut self, operation: &TOperationHandle, buffer: &mut Buffer) -> Result<TGetOperationStatusResp> {
        let call = encode_call(Method::GetOperationStatus.name(), self.next(), &status_request(operation))?;
        call_on(&mut self.connection, Method::GetOperationStatus, &call, buffer)
    }

    /// Runs a statement and closes its operation.
    pub fn run(&mut self, statement: &str, buffer: &mut Buffer) -> Result<()> {
        let operation = self.execute(statement, buffer)?;
        self.close_operation(operation, buffer)
    }

    /// Closes an operation.
    pub fn close_operation(&mut self, operation_handle: TOperationHandle, buffer: &mut Buffer) -> Result<()> {
        let request = TCloseOperationReq { operation_handle };
        let call = encode_call(Method::CloseOperation.name(), self.next(), &request)?;
        let _: TCloseOperationResp = call_on(&mut self.connection, Method::CloseOperation, &call, buffer)?;
        Ok(())
    }

    /// Closes the session, then its connection.
    pub fn close(mut self, buffer: &mut Buffer) -> Result<()> {
        let request = TCloseSessionReq { session_handle: self.handle.clone() };
        let call = encode_call(Method::CloseSession.name(), self.next(), &request)?;
        let _: TCloseSessionResp = call_on(&mut self.connection, Method::CloseSession, &call, buffer)?;
        Ok(())
    }

    /// Sends a prepared call and receives its reply, of which only the sequence number is new. Returns that and the reply.
    pub fn exchange<'a>(&mut self, call: &mut Prepared, buffer: &'a mut Buffer) -> Result<(i32, &'a [u8])> {
        let seqid = self.next();
        self.connection.send(call.with_seqid(seqid))?;
        Ok((seqid, self.connection.receive(buffer)?))
    }

    fn next(&mut self) -> i32 {
        self.seqid = self.seqid.wrapping_add(1).max(1);
        self.seqid
    }
}

/// The request for the status of an operation.
pub fn status_request(operation: &TOperationHandle) -> TGetOperationStatusReq {
    TGetOperationStatusReq { operation_handle: operation.clone(), get_progress_update: Some(false) }
}

/// Sends a call, receives the reply and checks its status.
fn call_on<A: Answer>(connection: &mut Connection, method: Method, call: &[u8], buffer: &mut Buffer) -> Result<A> {
    let framed = [&(call.len() as u32).to_be_bytes()[..], call].concat();
    connection.send(&framed)?;
    let answer: A = decode_reply(connection.receive(buffer)?).with_context(|| format!("the reply to {method}"))?;
    status::check(answer.status()).map_err(|error| anyhow::anyhow!("{method}: {}", error.text()))?;
    Ok(answer)
}
