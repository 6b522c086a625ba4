//! A client's connection: the login, and messages behind their lengths.

use std::io::{ErrorKind, Read, Write};

use anyhow::{Context as _, Result, bail, ensure};

use super::endpoint::Endpoint;
use super::stream::Stream;
use crate::frame;
use crate::prepared::LENGTH_BYTES;

/// What a client of SASL PLAIN sends before its response: START with the name of the mechanism.
const START: &[u8] = b"\x01\0\0\0\x05PLAIN";
/// The status before the response.
const COMPLETE: u8 = 5;
/// The reply to a login that was accepted.
const ACCEPTED: [u8; 5] = [COMPLETE, 0, 0, 0, 0];
/// The longest reply.
const MAX_REPLY_BYTES: usize = frame::MAX_BYTES;
/// The length of a new buffer.
const BUFFER_BYTES: usize = 64 << 10;

/// The memory that replies are read into. Connections share it, so that idle ones have none.
#[derive(Debug)]
pub struct Buffer(Vec<u8>);

impl Default for Buffer {
    fn default() -> Self {
        Self(vec![0; BUFFER_BYTES])
    }
}

/// A connection whose user is logged in.
pub struct Connection {
    stream: Stream,
}

impl Connection {
    /// Connects and logs in with SASL PLAIN, as the client with that number.
    pub fn open(endpoint: &Endpoint, number: usize, user: &str) -> Result<Self> {
        let mut stream = endpoint.connect(number)?;
        let credentials = format!("\0{user}\0x");
        let mut login = START.to_vec();
        login.push(COMPLETE);
        login.extend_from_slice(&(credentials.len() as u32).to_be_bytes());
        login.extend_from_slice(credentials.as_bytes());
        stream.write_all(&login)?;
        stream.flush()?;
        let mut answer = [0; ACCEPTED.len()];
        stream.read_exact(&mut answer).context("no answer to the login")?;
        ensure!(answer == ACCEPTED, "the login was refused");
        Ok(Self { stream })
    }

    /// Sends a message with its length.
    pub fn send(&mut self, framed: &[u8]) -> Result<()> {
        self.stream.write_all(framed).and_then(|()| self.stream.flush()).context("cannot send a call")
    }

    /// Receives one message. Bytes behind it are an error: nothing else was requested.
    pub fn receive<'a>(&mut self, buffer: &'a mut Buffer) -> Result<&'a [u8]> {
        let Buffer(bytes) = buffer;
        let (mut filled, mut wanted) = (0, LENGTH_BYTES);
        while filled < wanted {
            match self.stream.read(&mut bytes[filled..]) {
                Ok(0) => bail!("the connection was closed in place of a reply"),
                Ok(read) => filled += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error).context("cannot receive a reply"),
            }
            if wanted == LENGTH_BYTES && filled >= LENGTH_BYTES {
                let length = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
                ensure!(length <= MAX_REPLY_BYTES, "a reply of {length} bytes exceeds the limit of {MAX_REPLY_BYTES}");
                wanted = LENGTH_BYTES + length;
                if bytes.len() < wanted {
                    bytes.resize(wanted, 0);
                }
            }
        }
        ensure!(filled == wanted, "{} bytes follow a reply", filled - wanted);
        Ok(&bytes[LENGTH_BYTES..wanted])
    }
}
