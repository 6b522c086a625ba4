//! A scanner of the bytes that hyper receives: it finds where each head and each body ends, and how a head announces its
//! body.
//!
//! A request with two lengths, or with a length and chunks, may be read differently by a load balancer in front of this
//! server, and what one reads as a body the other reads as the next request (request smuggling). hyper reads one of the
//! lengths and does not show the others, so the scanner reads the heads too. hyper receives at most one head, or the part
//! of one body, at a time. A request that hyper frames in another way than the scanner is rejected.

use super::exchange::Framing;
use crate::limits::MAX_HTTP_HEAD_BYTES;

pub(super) struct RequestScanner {
    state: State,
}

enum State {
    Head(Head),
    /// A body with this many more bytes.
    Body(u64),
    Chunks(Chunks),
}

#[derive(Default)]
struct Head {
    /// The beginning of a line whose end has not arrived.
    line: Vec<u8>,
    /// The request line has arrived. Empty lines before it are skipped, as hyper does.
    has_begun: bool,
    /// The request line has a fragment, which no target may have (RFC 9112) and which hyper drops.
    has_fragment: bool,
    /// The values of the `Content-Length` headers and the number of `Transfer-Encoding` headers.
    lengths: Vec<u64>,
    encodings: usize,
}

/// The position in a body in chunks.
enum Chunks {
    /// In the line with the size of a chunk.
    Size { size: u64, is_in_digits: bool },
    /// In a chunk; this many bytes and its line end follow.
    Data(u64),
    /// In a line behind the last chunk.
    Trailer { is_empty: bool },
}

const NEXT_CHUNK: Chunks = Chunks::Size { size: 0, is_in_digits: true };

impl Default for RequestScanner {
    fn default() -> Self {
        Self { state: State::Head(Head::default()) }
    }
}

impl RequestScanner {
    /// How many of the next `bytes` hyper may receive now: up to the end of the head or of the body that they are in. At
    /// least one, unless there are none. With the end of a head: how it announces its body.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> (usize, Option<Framing>) {
        match &mut self.state {
            State::Head(head) => {
                let Some(length) = head.advance(bytes) else { return (bytes.len(), None) };
                let framing = head.framing();
                self.state = match framing {
                    Framing::Length(0) => State::Head(Head::default()),
                    Framing::Length(length) => State::Body(length),
                    // The connection ends after the last two.
                    Framing::Chunks | Framing::Ambiguous | Framing::InvalidTarget => State::Chunks(NEXT_CHUNK),
                };
                (length, Some(framing))
            }
            State::Body(left) => {
                let length = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= length as u64;
                if *left == 0 {
                    *self = Self::default();
                }
                (length, None)
            }
            State::Chunks(chunks) => match chunks.advance(bytes) {
                Some(length) => {
                    *self = Self::default();
                    (length, None)
                }
                None => (bytes.len(), None),
            },
        }
    }
}

impl Head {
    /// The number of bytes up to the end of the head, if it is among them.
    fn advance(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        while let Some(length) = bytes[at..].iter().position(|byte| *byte == b'\n') {
            let mut line = std::mem::take(&mut self.line);
            line.extend_from_slice(&bytes[at..at + length]);
            at += length + 1;
            if self.is_last(line.strip_suffix(b"\r").unwrap_or(&line)) {
                return Some(at);
            }
        }
        // hyper has rejected a longer head.
        if self.line.len() <= MAX_HTTP_HEAD_BYTES {
            self.line.extend_from_slice(&bytes[at..]);
        }
        None
    }

    /// Reads a whole line; `true` if the head ends with it.
    fn is_last(&mut self, line: &[u8]) -> bool {
        if line.is_empty() {
            return self.has_begun;
        }
        if !std::mem::replace(&mut self.has_begun, true) {
            self.has_fragment = line.contains(&b'#');
            return false;
        }
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { return false };
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        if name.eq_ignore_ascii_case(b"content-length") {
            let length = str::from_utf8(value).ok().and_then(|value| value.trim().parse().ok());
            // hyper rejects what is no number.
            self.lengths.push(length.unwrap_or(u64::MAX));
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.encodings += 1;
        }
        false
    }

    fn framing(&self) -> Framing {
        match (self.lengths.as_slice(), self.encodings) {
            _ if self.has_fragment => Framing::InvalidTarget,
            ([], 0) => Framing::Length(0),
            ([length], 0) => Framing::Length(*length),
            ([], 1) => Framing::Chunks,
            _ => Framing::Ambiguous,
        }
    }
}

impl Chunks {
    /// The number of bytes up to the end of the body, if it is among them. What hyper rejects is of no interest: the
    /// connection ends.
    fn advance(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            match self {
                Self::Data(left) => {
                    let length = (bytes.len() - at).min(usize::try_from(*left).unwrap_or(usize::MAX));
                    at += length;
                    *left -= length as u64;
                    if *left == 0 {
                        *self = NEXT_CHUNK;
                    }
                    continue;
                }
                Self::Size { size: 0, .. } if *byte == b'\n' => *self = Self::Trailer { is_empty: true },
                // With the line end behind the chunk.
                Self::Size { size, .. } if *byte == b'\n' => *self = Self::Data(size.saturating_add(2)),
                Self::Size { size, is_in_digits } => match char::from(*byte).to_digit(16) {
                    Some(digit) if *is_in_digits => *size = size.saturating_mul(16).saturating_add(digit.into()),
                    _ => *is_in_digits = false,
                },
                Self::Trailer { is_empty: true } if *byte == b'\n' => return Some(at + 1),
                Self::Trailer { is_empty } => match byte {
                    b'\n' => *is_empty = true,
                    b'\r' => {}
                    _ => *is_empty = false,
                },
            }
            at += 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    /// The pieces that hyper receives, when the bytes arrive in parts of these lengths.
    fn pieces(bytes: &[u8], parts: &[usize]) -> Vec<(Vec<u8>, Option<Framing>)> {
        let (mut scanner, mut pieces, mut rest) = (RequestScanner::default(), Vec::new(), bytes);
        let mut parts = parts.iter().copied().cycle();
        let mut current = Vec::new();
        while !rest.is_empty() {
            let part = parts.next().unwrap_or(rest.len()).clamp(1, rest.len());
            let (mut arrived, after) = rest.split_at(part);
            rest = after;
            while !arrived.is_empty() {
                let (length, framing) = scanner.advance(arrived);
                assert!(length > 0);
                current.extend_from_slice(&arrived[..length]);
                arrived = &arrived[length..];
                let at_a_head = matches!(&scanner.state, State::Head(head) if !head.has_begun && head.line.is_empty());
                if framing.is_some() || at_a_head {
                    pieces.push((std::mem::take(&mut current), framing));
                }
            }
        }
        assert_eq!(current, b"", "the last request is whole");
        pieces
    }

    fn framing(head: &str) -> Framing {
        let (length, framing) = RequestScanner::default().advance(head.as_bytes());
        assert_eq!(length, head.len(), "{head}");
        framing.unwrap()
    }

    #[test]
    fn a_head_announces_its_body_once() {
        for (headers, expected) in [
            ("", Framing::Length(0)),
            ("Host: a\r\n", Framing::Length(0)),
            ("CONTENT-length:\t7 \r\n", Framing::Length(7)),
            ("content-length: 7\n", Framing::Length(7)),
            ("X-Content-Length: 7\r\nContent-Lengths: 8\r\n", Framing::Length(0)),
            ("Content-Length: 007\r\n", Framing::Length(7)),
            ("transfer-Encoding: chunked\r\n", Framing::Chunks),
            ("Content-Length: 7\r\nContent-Length: 7\r\n", Framing::Ambiguous),
            ("Content-Length: 7\r\ncontent-length: 8\r\n", Framing::Ambiguous),
            ("Content-Length: 7\r\nX: y\r\nTransfer-Encoding: chunked\r\n", Framing::Ambiguous),
            ("Transfer-Encoding: chunked\r\nContent-Length: 7\r\n", Framing::Ambiguous),
            ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", Framing::Ambiguous),
        ] {
            assert_eq!(framing(&format!("POST / HTTP/1.1\r\n{headers}\r\n")), expected, "{headers:?}");
            assert_eq!(framing(&format!("\r\n\n\r\nPOST / HTTP/1.1\r\n{headers}\r\n")), expected, "{headers:?}");
        }
    }

    #[test]
    fn a_target_with_a_fragment_is_found() {
        for (target, expected) in [
            ("/a", Framing::Length(7)),
            ("/a%23b", Framing::Length(7)),
            ("/a#b", Framing::InvalidTarget),
            ("#", Framing::InvalidTarget),
        ] {
            let head = format!("POST {target} HTTP/1.1\r\nContent-Length: 7\r\nX: #\r\n\r\n");
            assert_eq!(framing(&head), expected, "{target}");
        }
    }

    fn request() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
        let body = || prop::collection::vec(any::<u8>(), 0..200);
        let by_length = body()
            .prop_map(|body| (format!("POST / HTTP/1.1\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes(), body));
        let chunk =
            (prop::collection::vec(any::<u8>(), 1..50), prop::sample::select(vec!["", ";a=1", " ", "\t;b=\"c\""]));
        let trailers = prop::sample::select(vec!["", "X: y\r\n", "X: y\r\nContent-Length: 3\r\n"]);
        let by_chunks = (prop::collection::vec(chunk, 0..5), trailers).prop_map(|(chunks, trailers)| {
            let mut body = Vec::new();
            for (chunk, extension) in chunks {
                body.extend_from_slice(format!("{:x}{extension}\r\n", chunk.len()).as_bytes());
                body.extend_from_slice(&chunk);
                body.extend_from_slice(b"\r\n");
            }
            body.extend_from_slice(format!("0\r\n{trailers}\r\n").as_bytes());
            (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec(), body)
        });
        prop_oneof![by_length, by_chunks]
    }

    proptest! {
        #[test]
        fn requests_are_divided_however_their_bytes_arrive(
            requests in prop::collection::vec(request(), 1..5),
            parts in prop::collection::vec(1_usize..40, 1..10),
        ) {
            let bytes = requests.iter().flat_map(|(head, body)| [head.clone(), body.clone()]).flatten().collect::<Vec<_>>();
            let expected = requests.into_iter().flat_map(|(head, body)| [head, body]).filter(|part| !part.is_empty());
            let pieces = pieces(&bytes, &parts).into_iter().map(|(piece, _)| piece).collect::<Vec<_>>();
            prop_assert_eq!(pieces, expected.collect::<Vec<_>>());
        }
    }
}
