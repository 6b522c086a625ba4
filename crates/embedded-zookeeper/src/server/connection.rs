//! One connection: a handshake or four-letter word, then frames in both directions until one side closes.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::time::{Instant, timeout};
use tracing::debug;

use super::admin;
use super::core::{Outgoing, QUEUE_MAX, Shared};
use crate::proto::FRAME_MAX;
use crate::state::ConnectionId;

/// How long a new connection may take for its first frame; then it is closed.
const HANDSHAKE_WAIT: Duration = Duration::from_secs(10);
/// How long a client may take to accept some bytes of a write; then the connection is cut.
const WRITE_WAIT: Duration = Duration::from_secs(10);
/// How long the server waits for the client's close after the last byte, so that a reset does not overtake it.
const LINGER: Duration = Duration::from_millis(500);
/// The most queued replies of one connection; no request is read until one is written.
const REPLIES_MAX: usize = 64;
/// The most frames of one write.
const BATCH_MAX: usize = 64;

/// How a connection ended.
enum End {
    /// The server closed it after writing all queued frames.
    Finished,
    /// The client closed it, it broke, or a test cut it.
    Broken,
}

/// Deregisters the connection when its task ends or is dropped.
struct Registered {
    shared: Arc<Shared>,
    connection: ConnectionId,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.shared.core().disconnect(self.connection);
    }
}

/// Serves one connection until it ends or `closing` changes.
pub(super) async fn serve(
    shared: Arc<Shared>,
    stream: TcpStream,
    peer: SocketAddr,
    connection: ConnectionId,
    mut closing: watch::Receiver<bool>,
) {
    // Frames are small: waiting to fill a segment would add 40 ms to each request.
    if let Err(error) = stream.set_nodelay(true) {
        debug!(connection, %error, "connection is gone already");
        return;
    }
    tokio::select! {
        () = converse(&shared, stream, peer, connection) => {}
        _ = closing.changed() => {}
    }
}

async fn converse(shared: &Arc<Shared>, stream: TcpStream, peer: SocketAddr, connection: ConnectionId) {
    let (mut read, mut write) = stream.into_split();
    let first = match timeout(HANDSHAKE_WAIT, first_frame(shared, &mut read)).await {
        Ok(Ok(first)) => first,
        Ok(Err(error)) => return debug!(connection, %peer, %error, "no handshake"),
        Err(_) => return debug!(connection, %peer, "no handshake in time"),
    };
    let frame = match first {
        First::Handshake(frame) => frame,
        First::Word(answer) => {
            if let Ok(Ok(())) = timeout(WRITE_WAIT, write.write_all(answer.as_bytes())).await {
                linger(&mut read, &mut write).await;
            }
            return;
        }
    };
    let (queue, queued) = mpsc::channel(QUEUE_MAX);
    let cut = Arc::new(Notify::new());
    let registered = Registered { shared: shared.clone(), connection };
    shared.core().connect(connection, peer, frame, queue, cut.clone());
    let end = tokio::select! {
        end = read_frames(shared, connection, &mut read) => end,
        end = write_frames(queued, &mut write) => end,
        () = cut.notified() => End::Broken,
    };
    drop(registered);
    if matches!(end, End::Finished) {
        linger(&mut read, &mut write).await;
    }
}

/// The first message of a connection.
enum First {
    Handshake(Bytes),
    /// A four-letter word, with its answer.
    Word(String),
}

async fn first_frame(shared: &Shared, read: &mut OwnedReadHalf) -> io::Result<First> {
    let mut head = [0; 4];
    read.read_exact(&mut head).await?;
    match admin::parse(head) {
        Some(word) => Ok(First::Word(admin::answer(word, &shared.core()))),
        None => Ok(First::Handshake(frame(head, read).await?)),
    }
}

/// Reads the frame whose length is `head`.
async fn frame(head: [u8; 4], read: &mut OwnedReadHalf) -> io::Result<Bytes> {
    /// The buffer that is allocated before any byte of a long frame has arrived.
    const FIRST_SPACE: usize = 64 << 10;
    let length = usize::try_from(i32::from_be_bytes(head)).ok().filter(|length| *length <= FRAME_MAX);
    let length = length.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "invalid frame length"))?;
    let mut frame = BytesMut::with_capacity(length.min(FIRST_SPACE));
    while frame.len() < length {
        let missing = length - frame.len();
        if read.read_buf(&mut (&mut frame).limit(missing)).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(frame.freeze())
}

async fn read_frames(shared: &Shared, connection: ConnectionId, read: &mut OwnedReadHalf) -> End {
    let replies = Arc::new(Semaphore::new(REPLIES_MAX));
    loop {
        let mut head = [0; 4];
        if let Err(error) = read.read_exact(&mut head).await {
            debug!(connection, %error, "client is gone");
            return End::Broken;
        }
        let frame = match frame(head, read).await {
            Ok(frame) => frame,
            Err(error) => {
                debug!(connection, %error, "connection cut");
                return End::Broken;
            }
        };
        let arrived = Instant::now();
        // Bounded by the writer's timeout: if nothing can be written, the connection ends.
        let Ok(permit) = replies.clone().acquire_owned().await else { return End::Broken };
        shared.core().handle(connection, frame, arrived, permit);
    }
}

async fn write_frames(mut queued: mpsc::Receiver<Outgoing>, write: &mut OwnedWriteHalf) -> End {
    let mut batch = Vec::with_capacity(BATCH_MAX);
    let mut bytes = BytesMut::new();
    loop {
        if queued.recv_many(&mut batch, BATCH_MAX).await == 0 {
            return End::Finished;
        }
        for outgoing in &batch {
            bytes.put_slice(&outgoing.frame);
        }
        while !bytes.is_empty() {
            match timeout(WRITE_WAIT, write.write_buf(&mut bytes)).await {
                Ok(Ok(written)) if written > 0 => {}
                _ => return End::Broken,
            }
        }
        batch.clear();
    }
}

/// Shuts down the write half and waits briefly for the client to close.
async fn linger(read: &mut OwnedReadHalf, write: &mut OwnedWriteHalf) {
    if write.shutdown().await.is_err() {
        return;
    }
    let _closed_or_late = timeout(LINGER, async {
        let mut rest = [0; 256];
        while matches!(read.read(&mut rest).await, Ok(count) if count > 0) {}
    })
    .await;
}
