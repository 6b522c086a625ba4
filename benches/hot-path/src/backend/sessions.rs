//! The sessions of one connection to the backend, with their operations: from a call to its reply.
//!
//! Sessions belong to their connection. The status of an operation can be asked for on another one, and it can be cancelled there,
//! as an engine agent does: it polls statements while it drains, and cancels one while a call of its session runs.
//!
//! A statement has finished when its call returns, but for `SELECT hot_path_wait()`, which runs until it is cancelled.
//! `SELECT hot_path_frames(BYTES, COUNT)` returns COUNT frames of BYTES bytes, any other SELECT one row, and what is no SELECT no
//! result.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use hs2::answer::{Answer, encode_refusal};
use hs2::message::encode_reply;
use hs2::scan::Request;
use hs2::tcli::{
    TCancelOperationResp, TCloseOperationResp, TCloseSessionResp, TExecuteStatementReq, TExecuteStatementResp,
    TFetchOrientation, TFetchResultsResp, TGetInfoReq, TGetInfoResp, TGetInfoType, TGetInfoValue,
    TGetOperationStatusResp, TGetResultSetMetadataResp, TOpenSessionReq, TOpenSessionResp, TOperationState,
    TOperationType,
};
use hs2::{Handle, Message, Method, protocol, rowset, schema, service, status};
use model::error::{ErrorKind, UserError};
use parking_lot::Mutex;

use crate::frame;
use crate::prepared::Prepared;

/// The most operations of a connection: each has a frame in memory.
const MAX_OPERATIONS: usize = 100;
/// The name in `GetInfo`.
const PRODUCT: &str = "hot-path";
/// What a statement for frames begins and ends with.
const FRAMES: (&str, &str) = ("SELECT hot_path_frames(", ")");
/// The statement that does not finish.
const WAIT: &str = "SELECT hot_path_wait()";

/// What all connections may know of the operations of each.
pub type Shared = Mutex<HashMap<Handle, Status>>;

/// The status of an operation.
#[derive(Clone, Copy)]
pub struct Status {
    state: TOperationState,
    has_result_set: bool,
}

/// The sessions of one connection.
pub struct Sessions {
    open: HashSet<Handle>,
    operations: HashMap<Handle, Operation>,
    shared: Arc<Shared>,
}

/// A statement. Its state changes only when it is cancelled.
struct Operation {
    session: Handle,
    status: Status,
    /// The reply to GetOperationStatus.
    prepared: Prepared,
    frame: Prepared,
    end: Prepared,
    /// How many frames the result has, and how many of them are left.
    frames: u64,
    left: u64,
}

impl Drop for Sessions {
    fn drop(&mut self) {
        self.shared.lock().retain(|handle, _| !self.operations.contains_key(handle));
    }
}

impl Sessions {
    pub fn new(shared: Arc<Shared>) -> Self {
        Self { open: HashSet::new(), operations: HashMap::new(), shared }
    }

    /// The reply to a call.
    pub fn reply(&mut self, message: &Message) -> Cow<'_, [u8]> {
        let Some(method) = message.method() else { return Cow::Owned(message.call().unknown()) };
        match self.serve(method, message) {
            Ok(reply) => reply,
            Err(error) => Cow::Owned(encode_refusal(method, message.seqid(), &error)),
        }
    }

    fn serve(&mut self, method: Method, message: &Message) -> Result<Cow<'_, [u8]>, UserError> {
        let seqid = message.seqid();
        match method {
            Method::GetOperationStatus => {
                let (_, handle) = named(message)?;
                if !self.operations.contains_key(&handle) {
                    let status = *self.shared.lock().get(&handle).ok_or_else(unknown)?;
                    return Ok(answer(message, &status.reply()));
                }
                let (_, operation) = self.operation(message)?;
                Ok(Cow::Borrowed(operation.prepared.with_seqid(seqid)))
            }
            Method::FetchResults => {
                let (request, operation) = self.operation(message)?;
                if request.fetch_type == protocol::FETCH_LOG {
                    let results = Some(rowset::lines(0, Vec::<String>::new()));
                    return Ok(answer(
                        message,
                        &TFetchResultsResp { results, ..Answer::with_status(status::success()) },
                    ));
                }
                match operation.status.state {
                    TOperationState::FINISHED_STATE => Ok(Cow::Borrowed(operation.next(&request, seqid))),
                    _ => Err(UserError::new(ErrorKind::WrongState, "the statement has not finished")),
                }
            }
            Method::OpenSession => self.open(message),
            Method::CloseSession => {
                let (_, handle) = named(message)?;
                self.open.remove(&handle);
                let ended = self.operations.extract_if(|_, operation| operation.session == handle);
                let mut shared = self.shared.lock();
                ended.for_each(|(operation, _)| {
                    shared.remove(&operation);
                });
                Ok(answer(message, &TCloseSessionResp::with_status(status::success())))
            }
            Method::ExecuteStatement => self.execute(message),
            Method::CancelOperation => {
                let (_, handle) = named(message)?;
                let mut shared = self.shared.lock();
                let status = shared.get_mut(&handle).ok_or_else(unknown)?;
                // One that does not run has finished.
                if status.state == TOperationState::RUNNING_STATE {
                    status.state = TOperationState::CANCELED_STATE;
                }
                Ok(answer(message, &TCancelOperationResp::with_status(status::success())))
            }
            Method::CloseOperation => {
                let (_, handle) = named(message)?;
                self.operations.remove(&handle).ok_or_else(unknown)?;
                self.shared.lock().remove(&handle);
                Ok(answer(message, &TCloseOperationResp::with_status(status::success())))
            }
            Method::GetResultSetMetadata => {
                let (_, operation) = self.operation(message)?;
                let columns = frame::columns();
                let schema = operation.status.has_result_set.then(|| schema::table_schema(&columns));
                Ok(answer(message, &TGetResultSetMetadataResp { status: status::success(), schema }))
            }
            Method::GetInfo => self.info(message),
            other => Err(service::not_supported(other)),
        }
    }

    fn operation(&mut self, message: &Message) -> Result<(Request, &mut Operation), UserError> {
        let (request, handle) = named(message)?;
        let operation = self.operations.get_mut(&handle).ok_or_else(unknown)?;
        if operation.status.state == TOperationState::RUNNING_STATE
            && let Some(status) = self.shared.lock().get(&handle).copied()
            && status.state != operation.status.state
        {
            operation.status = status;
            operation.prepared = status.prepared();
        }
        Ok((request, operation))
    }

    fn open(&mut self, message: &Message) -> Result<Cow<'_, [u8]>, UserError> {
        let request: TOpenSessionReq = message.call().decode().map_err(|error| error.user_error("the client"))?;
        let server_protocol_version = protocol::negotiate(request.client_protocol)?;
        let handle = Handle::random();
        self.open.insert(handle);
        let response = TOpenSessionResp {
            status: status::success(),
            server_protocol_version,
            session_handle: Some(handle.session()),
            configuration: Some(BTreeMap::new()),
        };
        Ok(answer(message, &response))
    }

    fn execute(&mut self, message: &Message) -> Result<Cow<'_, [u8]>, UserError> {
        let request: TExecuteStatementReq = message.call().decode().map_err(|error| error.user_error("the client"))?;
        let session = self.session(message)?;
        if self.operations.len() >= MAX_OPERATIONS {
            return Err(UserError::new(ErrorKind::ProgramLimit, "too many operations")
                .detail(format!("{MAX_OPERATIONS} operations of the connection are open.")));
        }
        let operation = Operation::new(session, request.statement.trim())?;
        let handle = Handle::random();
        let operation_handle = handle.operation(TOperationType::EXECUTE_STATEMENT, operation.status.has_result_set);
        self.shared.lock().insert(handle, operation.status);
        self.operations.insert(handle, operation);
        let response = TExecuteStatementResp { status: status::success(), operation_handle: Some(operation_handle) };
        Ok(answer(message, &response))
    }

    fn info(&self, message: &Message) -> Result<Cow<'_, [u8]>, UserError> {
        self.session(message)?;
        let request: TGetInfoReq = message.call().decode().map_err(|error| error.user_error("the client"))?;
        let value = match request.info_type {
            TGetInfoType::CLI_SERVER_NAME | TGetInfoType::CLI_DBMS_NAME => PRODUCT,
            TGetInfoType::CLI_DBMS_VER => env!("CARGO_PKG_VERSION"),
            other => {
                let message = format!("info type {} is not supported", other.0);
                return Err(UserError::new(ErrorKind::NotSupported, message));
            }
        };
        Ok(answer(message, &TGetInfoResp::new(status::success(), TGetInfoValue::StringValue(value.to_owned()))))
    }

    /// The session that a call names.
    fn session(&self, message: &Message) -> Result<Handle, UserError> {
        let (_, handle) = named(message)?;
        if self.open.contains(&handle) { Ok(handle) } else { Err(unknown()) }
    }
}

impl Status {
    fn reply(self) -> TGetOperationStatusResp {
        TGetOperationStatusResp { has_result_set: Some(self.has_result_set), ..status::operation(self.state) }
    }

    fn prepared(self) -> Prepared {
        let method = Method::GetOperationStatus.name();
        Prepared::new(method, encode_reply(method, 0, &self.reply()))
    }
}

impl Operation {
    fn new(session: Handle, statement: &str) -> Result<Self, UserError> {
        let cannot_encode = |error: anyhow::Error| UserError::new(ErrorKind::InvalidValue, error.to_string());
        let (frame, frames) = match frames_of(statement)? {
            Some((bytes, count)) => (frame::of_bytes(bytes), count),
            None => (frame::of_one_row(), 1),
        };
        let has_result_set = statement.get(..6).is_some_and(|word| word.eq_ignore_ascii_case("SELECT"));
        let frames = if has_result_set { frames } else { 0 };
        let state = if statement == WAIT { TOperationState::RUNNING_STATE } else { TOperationState::FINISHED_STATE };
        let status = Status { state, has_result_set };
        Ok(Self {
            session,
            status,
            prepared: status.prepared(),
            frame: Prepared::new(frame::METHOD, frame.map_err(cannot_encode)?),
            end: Prepared::new(frame::METHOD, frame::end().map_err(cannot_encode)?),
            frames,
            left: frames,
        })
    }

    /// The next frame, or the end.
    fn next(&mut self, request: &Request, seqid: i32) -> &[u8] {
        if request.orientation == TFetchOrientation::FETCH_FIRST.0 {
            self.left = self.frames;
        }
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                self.frame.with_seqid(seqid)
            }
            None => self.end.with_seqid(seqid),
        }
    }
}

/// The size and the number of frames that a statement asks for; `None` for any other statement.
fn frames_of(statement: &str) -> Result<Option<(usize, u64)>, UserError> {
    let (begin, end) = FRAMES;
    let Some(arguments) = statement.strip_prefix(begin).and_then(|rest| rest.strip_suffix(end)) else {
        return Ok(None);
    };
    let parsed = arguments
        .split_once(',')
        .and_then(|(bytes, count)| Some((bytes.trim().parse().ok()?, count.trim().parse().ok()?)));
    let refusal = || {
        UserError::new(ErrorKind::Syntax, "invalid arguments of hot_path_frames")
            .detail("They are the bytes of a frame and the number of frames.")
    };
    parsed.map(Some).ok_or_else(refusal)
}

/// The scanned call and the handle that it names.
fn named(message: &Message) -> Result<(Request, Handle), UserError> {
    let malformed = || UserError::new(ErrorKind::Syntax, format!("malformed {} request", message.name()));
    let request = message.request().map_err(|error| malformed().detail(format!("{error}.")))?;
    let handle = request.handle.as_ref().and_then(|at| at.read(message.bytes()).ok()).ok_or_else(malformed)?;
    Ok((request, handle))
}

fn unknown() -> UserError {
    UserError::new(ErrorKind::WrongState, "session or operation does not exist")
}

fn answer<A: Answer>(message: &Message, answer: &A) -> Cow<'static, [u8]> {
    Cow::Owned(encode_reply(message.name(), message.seqid(), answer))
}
