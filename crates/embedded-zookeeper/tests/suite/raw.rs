//! A client of raw frames, for what a client library never does or does not show.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::soon;

/// Operation codes.
pub mod op {
    pub const CREATE: i32 = 1;
    pub const DELETE: i32 = 2;
    pub const EXISTS: i32 = 3;
    pub const GET_DATA: i32 = 4;
    pub const SET_DATA: i32 = 5;
    pub const GET_CHILDREN: i32 = 8;
    pub const PING: i32 = 11;
    pub const CHECK: i32 = 13;
    pub const MULTI: i32 = 14;
    pub const CHECK_WATCHES: i32 = 17;
    pub const REMOVE_WATCHES: i32 = 18;
    pub const AUTH: i32 = 100;
    pub const SET_WATCHES: i32 = 101;
    pub const SET_WATCHES2: i32 = 105;
    pub const CLOSE: i32 = -11;
}

/// The encoded fields of a record.
#[derive(Clone, Debug, Default)]
pub struct Record(pub Vec<u8>);

impl Record {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn int(mut self, value: i32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub fn long(mut self, value: i64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub fn flag(mut self, value: bool) -> Self {
        self.0.push(u8::from(value));
        self
    }

    pub fn bytes(self, value: &[u8]) -> Self {
        let mut record = self.int(value.len() as i32);
        record.0.extend(value);
        record
    }

    pub fn text(self, value: &str) -> Self {
        self.bytes(value.as_bytes())
    }

    pub fn texts(self, values: &[&str]) -> Self {
        values.iter().fold(self.int(values.len() as i32), |record, value| record.text(value))
    }

    /// A create request's record, open to every client.
    pub fn create(self, path: &str, data: &[u8], flags: i32) -> Self {
        self.text(path).bytes(data).int(1).int(31).text("world").text("anyone").int(flags)
    }
}

/// A frame from the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    Reply {
        xid: i32,
        zxid: i64,
        error: i32,
        body: Vec<u8>,
    },
    /// Kind (1 created, 2 deleted, 3 data, 4 children) and path.
    Event {
        kind: i32,
        path: String,
    },
}

/// The server's answer to the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    pub id: i64,
    pub timeout_ms: i32,
    pub password: Vec<u8>,
    /// Whether the answer ended with the read-only flag.
    pub with_flag: bool,
}

/// The fields of a handshake request.
#[derive(Clone, Debug)]
pub struct Handshake {
    pub last_zxid: i64,
    pub timeout_ms: i32,
    pub session: i64,
    pub password: Vec<u8>,
    pub with_flag: bool,
}

impl Default for Handshake {
    fn default() -> Self {
        Self { last_zxid: 0, timeout_ms: 10_000, session: 0, password: vec![0; 16], with_flag: true }
    }
}

impl Handshake {
    /// Resumes a session.
    pub fn resume(session: &Session) -> Self {
        Self { session: session.id, password: session.password.clone(), ..Self::default() }
    }
}

/// A connection that sends and receives raw frames.
pub struct Raw {
    stream: TcpStream,
    next_xid: i32,
    pub session: Session,
}

impl Raw {
    /// A new session with a timeout of 10 s.
    pub async fn connect(addr: SocketAddr) -> Self {
        Self::connect_as(addr, Handshake::default()).await.expect("the handshake was not answered")
    }

    /// Any handshake; `None` if the server closed without an answer.
    pub async fn connect_as(addr: SocketAddr, handshake: Handshake) -> Option<Self> {
        let mut stream = soon(TcpStream::connect(addr)).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let record = Record::new().int(0).long(handshake.last_zxid).int(handshake.timeout_ms).long(handshake.session);
        let mut record = record.bytes(&handshake.password);
        if handshake.with_flag {
            record = record.flag(false);
        }
        send(&mut stream, &record.0).await;
        let answer = receive(&mut stream).await?;
        let session = Session {
            timeout_ms: i32::from_be_bytes(answer[4..8].try_into().unwrap()),
            id: i64::from_be_bytes(answer[8..16].try_into().unwrap()),
            password: answer[20..36].to_vec(),
            with_flag: answer.len() == 37,
        };
        Some(Self { stream, next_xid: 1, session })
    }

    /// Sends a request; returns its `xid`.
    pub async fn send(&mut self, op: i32, record: Record) -> i32 {
        let xid = self.next_xid;
        self.next_xid += 1;
        self.send_as(xid, op, record).await;
        xid
    }

    /// Sends a request with a given `xid`.
    pub async fn send_as(&mut self, xid: i32, op: i32, record: Record) {
        let mut request = Record::new().int(xid).int(op);
        request.0.extend(record.0);
        send(&mut self.stream, &request.0).await;
    }

    /// Sends a frame as it is.
    pub async fn send_frame(&mut self, length: i32, bytes: &[u8]) {
        self.stream.write_all(&length.to_be_bytes()).await.unwrap();
        self.stream.write_all(bytes).await.unwrap();
    }

    /// The next frame; `None` if the server closed the connection.
    pub async fn receive(&mut self) -> Option<Frame> {
        let frame = receive(&mut self.stream).await?;
        let int = |at: usize| i32::from_be_bytes(frame[at..at + 4].try_into().unwrap());
        if int(0) == -1 {
            return Some(Frame::Event { kind: int(16), path: String::from_utf8(frame[28..].to_vec()).unwrap() });
        }
        let zxid = i64::from_be_bytes(frame[4..12].try_into().unwrap());
        Some(Frame::Reply { xid: int(0), zxid, error: int(12), body: frame[16..].to_vec() })
    }

    /// Sends a request and returns the error and record of its reply, which must be the next frame.
    pub async fn ask(&mut self, op: i32, record: Record) -> (i32, Vec<u8>) {
        let sent = self.send(op, record).await;
        match self.receive().await {
            Some(Frame::Reply { xid, error, body, .. }) if xid == sent => (error, body),
            other => panic!("expected a reply to {op}, received {other:?}"),
        }
    }

    /// The server's last transaction id.
    pub async fn zxid(&mut self) -> i64 {
        self.send(op::EXISTS, Record::new().text("/").flag(false)).await;
        match self.receive().await {
            Some(Frame::Reply { zxid, .. }) => zxid,
            other => panic!("expected a reply, received {other:?}"),
        }
    }

    /// Waits until the server closes the connection; returns the frames received before.
    pub async fn until_closed(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.receive().await {
            frames.push(frame);
        }
        frames
    }
}

async fn send(stream: &mut TcpStream, bytes: &[u8]) {
    let mut frame = (bytes.len() as i32).to_be_bytes().to_vec();
    frame.extend(bytes);
    stream.write_all(&frame).await.unwrap();
}

async fn receive(stream: &mut TcpStream) -> Option<Vec<u8>> {
    soon(async {
        let length = stream.read_i32().await.ok()?;
        let mut frame = vec![0; length as usize];
        stream.read_exact(&mut frame).await.ok()?;
        Some(frame)
    })
    .await
}
