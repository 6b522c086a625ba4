//! Frames, limits and malformed requests.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::raw::{Frame, Handshake, Raw, Record, op};
use super::{Target, soon};

pub async fn an_old_client_is_answered_without_the_read_only_flag(target: Target) {
    let mut old = Raw::connect_as(target.addr, Handshake { with_flag: false, ..Handshake::default() }).await.unwrap();
    assert!(!old.session.with_flag);
    assert_eq!(old.session.timeout_ms, 10_000);
    assert_eq!(old.ask(op::EXISTS, Record::new().text("/").flag(false)).await.0, 0);
    assert!(Raw::connect(target.addr).await.session.with_flag);
}

pub async fn a_frame_beyond_the_limit_ends_the_connection(target: Target) {
    for length in [0x10_0000, -1] {
        let mut raw = Raw::connect(target.addr).await;
        raw.send_frame(length, b"").await;
        assert!(raw.until_closed().await.is_empty(), "{length}");
    }
}

pub async fn a_large_frame_within_the_limit_is_taken(target: Target) {
    let mut raw = Raw::connect(target.addr).await;
    let path = target.path("/a");
    let overhead = Record::new().int(0).int(0).create(&path, b"", 0).0.len();
    let data = vec![7; 0xf_ffff - overhead];
    assert_eq!(raw.ask(op::CREATE, Record::new().create(&path, &data, 0)).await.0, 0);
    let (error, body) = raw.ask(op::GET_DATA, Record::new().text(&path).flag(false)).await;
    assert_eq!(error, 0);
    assert_eq!(body.len(), 4 + data.len() + 68);
    assert_eq!(raw.ask(op::DELETE, Record::new().text(&path).int(-1)).await.0, 0);
}

pub async fn an_unknown_operation_is_refused(target: Target) {
    let mut raw = Raw::connect(target.addr).await;
    let asked = raw.send(99, Record::new()).await;
    let frames = raw.until_closed().await;
    assert!(matches!(frames[..], [Frame::Reply { xid, error: -6, .. }] if xid == asked), "{frames:?}");
}

pub async fn an_unreadable_request_is_refused(target: Target) {
    let mut raw = Raw::connect(target.addr).await;
    let (error, body) = raw.ask(op::GET_DATA, Record::new().int(1_000)).await;
    assert_eq!((error, body.len()), (-5, 0));
    let (error, _) = raw.ask(op::SET_DATA, Record::new().int(1_000)).await;
    assert_eq!(error, -5);
    assert_eq!(raw.ask(op::EXISTS, Record::new().text("/").flag(false)).await.0, 0);
}

pub async fn replies_come_in_the_order_of_requests(target: Target) {
    /// Requests in flight at once, more than a server answers before it reads further.
    const REQUESTS: i32 = 500;
    let mut raw = Raw::connect(target.addr).await;
    let mut sent = Vec::new();
    for number in 0..REQUESTS {
        let path = target.path(&format!("/{}", number / 2));
        sent.push(match number % 2 {
            0 => raw.send(op::CREATE, Record::new().create(&path, b"", 0)).await,
            _ => raw.send(op::EXISTS, Record::new().text(&path).flag(false)).await,
        });
    }
    let mut last = 0;
    for expected in sent {
        match raw.receive().await.unwrap() {
            Frame::Reply { xid, zxid, error: 0, .. } if xid == expected && zxid >= last => last = zxid,
            other => panic!("expected the reply to {expected}, received {other:?}"),
        }
    }
}

pub async fn a_client_ahead_of_the_server_is_rejected(target: Target) {
    let handshake = Handshake { last_zxid: i64::MAX, ..Handshake::default() };
    assert!(Raw::connect_as(target.addr, handshake).await.is_none());
}

pub async fn four_letter_words_are_answered(target: Target) {
    for (word, expected) in
        [("ruok", "imok"), ("srvr", "Mode: standalone"), ("stat", "Clients:"), ("mntr", "zk_server_state\tstandalone")]
    {
        let mut stream = soon(TcpStream::connect(target.addr)).await.unwrap();
        stream.write_all(word.as_bytes()).await.unwrap();
        let mut text = String::new();
        soon(stream.read_to_string(&mut text)).await.unwrap();
        assert!(text.contains(expected), "{word}: {text}");
    }
}
