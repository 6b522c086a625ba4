//! Hostile bytes.
#![allow(clippy::unwrap_used, clippy::panic)]

use hs2::handle::InvalidHandle;
use hs2::message::{decode_call, decode_reply};
use hs2::scan::{self, ScanError, WalkProgress, Walker};
use hs2::tcli::{TFetchResultsResp, TGetTablesReq};
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::corpus::{self, with_types};

/// How many mutants the corpus is turned into.
const MUTANTS: usize = 40_000;

fn everything(bytes: &[u8]) {
    let header = scan::header(bytes);
    let whole = scan::whole(bytes);
    let request = scan::request(bytes);
    let reply = scan::reply(bytes);
    for length in [0, bytes.len() / 2, bytes.len()] {
        let _ = scan::reply_head(&bytes[..length], bytes.len());
    }
    // The two walks over a message agree on where it ends, and on whether it does.
    match (&whole, Walker::new().advance(bytes)) {
        (Ok(_), walked) => assert_eq!(walked, Ok(WalkProgress::End(bytes.len()))),
        (Err(ScanError::Trailing), walked) => {
            assert!(matches!(walked, Ok(WalkProgress::End(end)) if end < bytes.len()));
        }
        (Err(ScanError::Truncated { .. }), walked) => {
            assert!(matches!(walked, Ok(WalkProgress::AtLeast(least)) if least > bytes.len()), "{walked:?}");
        }
        (Err(_), walked) => assert!(walked.is_err(), "{whole:?} {walked:?}"),
    }
    // What a relay would patch lies inside the message and is well formed.
    if let Ok(request) = &request {
        assert!(whole.is_ok());
        let mut copy = bytes.to_vec();
        if let Some(at) = request.handle {
            let handle = at.read(bytes).unwrap();
            at.patch(&mut copy, &handle).unwrap();
            assert_eq!(copy, bytes);
        }
        request.statement_in(bytes);
    }
    if let Ok(reply) = &reply {
        reply.succeeded();
        reply.handle.map(|at| at.read(bytes).unwrap());
    }
    if let Ok(header) = header {
        let name = header.name_in(bytes).to_owned();
        macro_rules! decode {
            ($request:ident, $response:ident) => {{
                let _ = decode_call::<$request>(bytes);
                let _ = decode_reply::<$response>(bytes);
            }};
        }
        with_types!(name.as_str(), decode, ());
    }
}

#[test]
fn mutated_messages_are_read_or_refused_and_nothing_panics() {
    let seed =
        std::env::var("EH_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random::<u64>);
    println!("EH_TEST_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let corpus: Vec<Vec<u8>> = corpus::messages().into_iter().map(|recorded| recorded.bytes).collect();
    let interesting = [0_u8, 1, 2, 3, 4, 6, 8, 10, 11, 12, 13, 14, 15, 16, 0x7f, 0x80, 0xff];
    for _ in 0..MUTANTS {
        let mut bytes = corpus[random.random_range(0..corpus.len())].clone();
        for _ in 0..random.random_range(1..6) {
            if bytes.is_empty() {
                break;
            }
            let at = random.random_range(0..bytes.len());
            match random.random_range(0..6) {
                0 => bytes[at] = random.random(),
                1 => bytes[at] = interesting[random.random_range(0..interesting.len())],
                2 => bytes.truncate(at),
                3 => bytes.insert(at, random.random()),
                4 => {
                    // A piece of another message.
                    let other = &corpus[random.random_range(0..corpus.len())];
                    let from = random.random_range(0..other.len());
                    let to = (from + random.random_range(1..64)).min(other.len());
                    bytes.splice(at..at, other[from..to].iter().copied());
                }
                _ => {
                    // A length.
                    let length: i32 = [i32::MAX, i32::MIN, -1, 1 << 24, random.random()][random.random_range(0..5)];
                    let end = (at + 4).min(bytes.len());
                    bytes.splice(at..end, length.to_be_bytes());
                }
            }
        }
        everything(&bytes);
    }
}

#[test]
fn every_prefix_of_every_message_is_refused_as_too_short() {
    for recorded in corpus::messages() {
        for length in 0..recorded.bytes.len() {
            let error = scan::whole(&recorded.bytes[..length]).unwrap_err();
            assert!(
                matches!(error, ScanError::Truncated { at_least } if at_least > length && at_least <= recorded.bytes.len()),
                "{}, {length}: {error}",
                recorded.name
            );
        }
    }
}

proptest! {
    #[test]
    fn random_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        everything(&bytes);
    }

    #[test]
    fn random_bytes_behind_a_head_are_read_or_refused(
        method in 0..hs2::Method::ALL.len(),
        kind in 1_u8..4,
        body in proptest::collection::vec(prop_oneof![Just(0_u8), Just(1), Just(2), Just(8), Just(11), Just(12), Just(13), Just(15), any::<u8>()], 0..256),
    ) {
        everything(&message(kind, hs2::Method::ALL[method].name(), &body));
    }
}

fn message(kind: u8, name: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x80, 1, 0, kind];
    bytes.extend_from_slice(&(name.len() as i32).to_be_bytes());
    bytes.extend_from_slice(name.as_bytes());
    bytes.extend_from_slice(&7_i32.to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// The first field of a request on a session: a `TSessionHandle` whose 32 bytes are all `fill`.
fn session_handle(fill: u8) -> Vec<u8> {
    let mut bytes = vec![12, 0, 1, 12, 0, 1];
    for half in [1, 2] {
        bytes.extend_from_slice(&[11, 0, half, 0, 0, 0, 16]);
        bytes.extend_from_slice(&[fill; 16]);
    }
    bytes.extend_from_slice(&[0, 0]);
    bytes
}

fn call(name: &str, fields: &[&[u8]]) -> Vec<u8> {
    let mut body = vec![12, 0, 1];
    for field in fields {
        body.extend_from_slice(field);
    }
    body.extend_from_slice(&[0, 0]);
    message(1, name, &body)
}

#[test]
fn a_second_handle_in_one_request_is_refused() {
    let (one, two) = (session_handle(1), session_handle(2));
    assert!(scan::request(&call("CloseSession", &[&one])).is_ok());
    // A decoder takes the last, a scanner the first: what was checked would not be what is executed.
    assert_eq!(scan::request(&call("CloseSession", &[&one, &two])), Err(ScanError::Duplicate(1)));
    let statement = [11, 0, 2, 0, 0, 0, 1, b'x'];
    assert!(scan::request(&call("ExecuteStatement", &[&one, &statement])).is_ok());
    assert_eq!(scan::request(&call("ExecuteStatement", &[&one, &statement, &statement])), Err(ScanError::Duplicate(2)));
    // Two argument structs.
    let mut twice = call("CloseSession", &[&one]);
    let body = scan::header(&twice).unwrap().body;
    let argument = twice[body..twice.len() - 1].to_vec();
    twice.splice(body..body, argument);
    assert_eq!(scan::request(&twice), Err(ScanError::Duplicate(1)));
}

#[test]
fn a_request_without_what_it_needs_is_refused() {
    assert_eq!(scan::request(&call("CloseSession", &[])), Err(ScanError::Missing(1)));
    assert_eq!(scan::request(&call("ExecuteStatement", &[&session_handle(1)])), Err(ScanError::Missing(2)));
    let number = [8, 0, 2, 0, 0, 0, 1];
    assert_eq!(scan::request(&call("ExecuteStatement", &[&session_handle(1), &number])), Err(ScanError::WrongType(2)));
    let short = [12, 0, 1, 12, 0, 1, 11, 0, 1, 0, 0, 0, 1, 9, 11, 0, 2, 0, 0, 0, 1, 9, 0, 0];
    assert_eq!(scan::request(&call("CloseSession", &[&short])), Err(ScanError::BadHandle(InvalidHandle)));
    let mut trailing = call("CloseSession", &[&session_handle(1)]);
    trailing.push(0);
    assert_eq!(scan::request(&trailing), Err(ScanError::Trailing));
}

#[test]
fn a_list_longer_than_its_message_is_refused_before_allocation() {
    for claimed in [i32::MAX, 1 << 28] {
        let mut list = vec![15, 0, 5, 11];
        list.extend_from_slice(&claimed.to_be_bytes());
        let bytes = call("GetTables", &[&session_handle(1), &list]);
        assert!(decode_call::<TGetTablesReq>(&bytes).is_err());
        assert!(scan::request(&bytes).is_err());
    }
    // A list of two million structs that are there, one byte each: more than is ever decoded.
    let count = 2_000_000;
    let mut body = vec![12, 0, 0, 12, 0, 1, 8, 0, 1, 0, 0, 0, 0, 0, 12, 0, 3, 10, 0, 1];
    body.extend_from_slice(&0_i64.to_be_bytes());
    body.extend_from_slice(&[15, 0, 2, 12]);
    body.extend_from_slice(&(count as i32).to_be_bytes());
    body.resize(body.len() + count, 0);
    body.extend_from_slice(&[0, 0, 0]);
    let error = decode_reply::<TFetchResultsResp>(&message(2, "FetchResults", &body)).unwrap_err();
    assert!(error.to_string().contains("exceeds maximum allowed size of 1048576"), "{error}");
}

#[test]
fn nesting_ends_at_the_limit_and_not_with_the_stack() {
    for wire in [12_u8, 15, 13] {
        let mut body = Vec::new();
        for _ in 0..100_000 {
            match wire {
                12 => body.extend_from_slice(&[12, 0, 9]),
                15 if body.is_empty() => body.extend_from_slice(&[15, 0, 9, 15, 0, 0, 0, 1]),
                15 => body.extend_from_slice(&[15, 0, 0, 0, 1]),
                _ if body.is_empty() => body.extend_from_slice(&[13, 0, 9, 13, 13, 0, 0, 0, 1]),
                _ => body.extend_from_slice(&[13, 13, 0, 0, 0, 1]),
            }
        }
        let bytes = message(1, "OpenSession", &body);
        assert_eq!(scan::request(&bytes), Err(ScanError::TooDeep));
        assert_eq!(Walker::new().advance(&bytes), Err(ScanError::TooDeep));
        assert!(decode_call::<hs2::tcli::TOpenSessionReq>(&bytes).is_err());
    }
}
