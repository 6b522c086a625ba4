//! Whatever arrives on any of its ports, a running installation answers with a clear error or closes the connection,
//! and goes on as it was: the same processes, the same catalog, no memory taken for what was only announced.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use tests::resident_set::resident_bytes;

use crate::installation::{Installation, state, text};

const MIB: usize = 1 << 20;
/// Longer than the server's deadline for authentication.
const PATIENCE: Duration = Duration::from_secs(15);

/// The ports on which a process listens, by its sockets.
fn ports_of(pid: u32) -> Vec<u16> {
    let sockets: Vec<String> = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .flatten()
        .filter_map(|entry| Some(std::fs::read_link(entry.path()).ok()?.to_string_lossy().into_owned()))
        .filter_map(|link| Some(link.strip_prefix("socket:[")?.trim_end_matches(']').to_owned()))
        .collect();
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap();
    let listening = table.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_ours =
            fields.get(3) == Some(&"0A") && sockets.iter().any(|inode| Some(&inode.as_str()) == fields.get(9));
        is_ours.then(|| u16::from_str_radix(fields[1].rsplit(':').next().unwrap(), 16).unwrap())
    });
    listening.collect()
}

fn length(of: &[u8]) -> [u8; 4] {
    u32::try_from(of.len()).unwrap().to_be_bytes()
}

fn sasl(user: &[u8]) -> Vec<u8> {
    let proof = [b"\0", user, b"\0x"].concat();
    [&b"\x01\0\0\0\x05PLAIN\x05"[..], &length(&proof), &proof].concat()
}

fn call(method: &[u8], body: &[u8]) -> Vec<u8> {
    [&b"\x80\x01\0\x01"[..], &length(method), method, b"\0\0\0\x01", body].concat()
}

/// A call behind a handshake, in a frame.
fn framed(method: &[u8], body: &[u8]) -> Vec<u8> {
    let message = call(method, body);
    [sasl(b"admin"), length(&message).to_vec(), message].concat()
}

/// Bytes with no meaning, always the same ones.
fn noise() -> Vec<u8> {
    let mut state = 88_172_645_463_325_252_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_be_bytes()[0]
    };
    (0..2_000).map(|_| next()).collect()
}

/// The input of one connection.
struct Attack {
    name: &'static str,
    bytes: Vec<u8>,
    /// The connection may stay open, because an answer was given.
    may_stay: bool,
    /// The reply of an open `HiveServer2` port; empty if there is none.
    reply: &'static str,
}

fn attacks() -> Vec<Attack> {
    let deep = b"\x0c\0\x01".repeat(200_000);
    let long_list = b"\x0c\0\x01\x0d\0\x04\x0b\x0b\x7f\xff\xff\xff";
    let short_handle = b"\x0c\0\x01\x0c\0\x01\x0c\0\x01\x0b\0\x01\0\0\0\x03aaa\0\0\0\0";
    let admin = |rest: &[u8]| [&sasl(b"admin"), rest].concat();
    let ends = |name, reply, bytes| Attack { name, bytes, may_stay: false, reply };
    let stays = |name, reply, bytes| Attack { name, bytes, may_stay: true, reply };
    let text = |text: &str| text.as_bytes().to_vec();
    vec![
        ends("noise", "this port speaks HiveServer2", [vec![7], noise()].concat()),
        ends("zeros", "this port speaks HiveServer2", vec![0; 5_000]),
        ends("TLS", "\x15\x03\x01", [b"\x16\x03\x01".to_vec(), noise()].concat()),
        ends("a page, please", "405", text("GET / HTTP/1.1\r\nHost: x\r\n\r\n")),
        ends(
            "a huge POST",
            "401",
            text("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999\r\n\r\n"),
        ),
        ends("endless header", "431", [&b"POST / HTTP/1.1\r\nX: "[..], &b"x".repeat(1 << 20)].concat()),
        ends("2 GB mechanism", "the limit of 65536", b"\x01\x7f\xff\xff\xffPLAIN".to_vec()),
        ends("2 GB proof", "the limit of 65536", b"\x01\0\0\0\x05PLAIN\x05\x7f\xff\xff\xff".to_vec()),
        ends("other mechanism", "KERBER", b"\x01\0\0\0\x06KERBER".to_vec()),
        ends("a name that is no UTF-8", "malformed", sasl(b"\xff\xfe")),
        ends("half a handshake", "did not end in time", b"\x01\0\0".to_vec()),
        ends("half a proof", "did not end in time", sasl(b"admin")[..14].to_vec()),
        ends("2 GB frame", "", admin(b"\x7f\xff\xff\xff")),
        ends("4 GB frame", "", admin(b"\xff\xff\xff\xff")),
        ends(
            "2 GB statement",
            "request ExecuteStatement too long",
            admin(&[&b"\x7f\xff\xff\xff"[..], &call(b"ExecuteStatement", &noise())].concat()),
        ),
        ends("empty frame", "invalid request", admin(b"\0\0\0\0")),
        ends("2 GB method name", "invalid request", admin(b"\0\0\0\x08\x80\x01\0\x01\x7f\xff\xff\xff")),
        stays("deep structs", "deeper", framed(b"OpenSession", &deep)),
        ends("deep structs, plain", "deeper", call(b"OpenSession", &deep)),
        stays("a list of 2 G", "message is truncated", framed(b"OpenSession", long_list)),
        ends("a list of 2 G, plain", "", call(b"OpenSession", long_list)),
        stays("a text of -1", "negative length", framed(b"OpenSession", b"\x0c\0\x01\x0b\0\x02\xff\xff\xff\xff")),
        stays("unknown method", "Explode", framed(b"Explode", b"\0")),
        stays("a handle of 3 bytes", "16 and 16", framed(b"CloseSession", short_handle)),
    ]
}

/// A session with ZooKeeper, and what comes behind it.
fn zookeeper(behind: &[u8]) -> Vec<u8> {
    let mut connect = vec![0; 28];
    // A timeout of 6 s; no session yet, so a password of zeros.
    connect[12..16].copy_from_slice(&6_000_u32.to_be_bytes());
    connect[24..28].copy_from_slice(&16_u32.to_be_bytes());
    connect.extend_from_slice(&[0; 17]);
    [&length(&connect)[..], &connect, behind].concat()
}

fn zookeeper_call(operation: u32, body: &[u8]) -> Vec<u8> {
    let call = [&1_u32.to_be_bytes()[..], &operation.to_be_bytes(), body].concat();
    zookeeper(&[&length(&call)[..], &call].concat())
}

/// Input for ZooKeeper's port. Where its protocol has no error, the connection ends.
fn zookeeper_attacks() -> Vec<Attack> {
    let (create, exists, multi) = (1, 3, 14);
    let ends = |name, bytes| Attack { name, bytes, may_stay: false, reply: "" };
    let stays = |name, bytes| Attack { name, bytes, may_stay: true, reply: "" };
    let mut huge_password = zookeeper(&[]);
    huge_password[28..32].copy_from_slice(&[0x7f, 0xff, 0xff, 0xff]);
    let mut stolen = zookeeper(&[]);
    stolen[20..28].copy_from_slice(&[0x11; 8]);
    vec![
        ends("half a handshake", zookeeper(&[])[..20].to_vec()),
        ends("a password of 2 GB", huge_password),
        stays("a session that is not there", stolen),
        ends("a frame of 2 GB", zookeeper(&[0x7f, 0xff, 0xff, 0xff])),
        ends("a frame of -1", zookeeper(&[0xff; 4])),
        stays("noise behind a handshake", zookeeper(&[&length(&noise())[..], &noise()].concat())),
        stays("an unknown operation", zookeeper_call(9_999, &[])),
        stays("a path of 2 GB", zookeeper_call(exists, &[0x7f, 0xff, 0xff, 0xff])),
        stays("a path that is none", zookeeper_call(exists, b"\0\0\0\x04../x\0")),
        stays("an ACL of 2 G entries", zookeeper_call(create, b"\0\0\0\x02/x\0\0\0\0\x7f\xff\xff\xff\0\0\0\0")),
        stays("a node for every client", zookeeper_call(create, b"\0\0\0\x0f/enginehouse/xyz\0\0\0\0\0\0\0\0\0\0\0\0")),
        stays("noise in a transaction", zookeeper_call(multi, &noise())),
    ]
}

/// The bytes of an answer behind which a connection may stay open are more than these.
const ANSWER_BYTES: usize = 10;

/// Sends it and reads what comes back until the connection is closed or quiet; `true` if it was closed. An answer is waited for
/// with patience, and what may follow it for a while.
fn attack(port: u16, bytes: &[u8], may_stay: bool) -> (bool, Vec<u8>) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    // It may be closed before all is sent.
    let _ = stream.write_all(bytes);
    let (mut answer, mut piece) = (Vec::new(), [0_u8; 4_096]);
    loop {
        let quiet = if may_stay && answer.len() > ANSWER_BYTES { Duration::from_secs(3) } else { PATIENCE };
        stream.set_read_timeout(Some(quiet)).unwrap();
        match stream.read(&mut piece) {
            Ok(0) => return (true, answer),
            Ok(read) => answer.extend_from_slice(&piece[..read]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return (false, answer);
            }
            Err(_) => return (true, answer),
        }
        assert!(answer.len() < 1 << 20, "an endless answer");
    }
}

#[test]
fn no_bytes_on_any_port_disturb_an_installation() {
    let mut server = Installation::with_an_engine();
    let before = state(&server);
    let processes = [server.engines(), vec![server.pid()]].concat();
    let memory: Vec<usize> = processes.iter().map(|pid| resident_bytes(*pid).unwrap()).collect();
    let ports: Vec<u16> = processes.iter().flat_map(|pid| ports_of(*pid)).collect();
    assert_eq!(ports.len(), 5, "proxy, metadata agent, ZooKeeper, engine agent, engine: {ports:?}");
    let proxy: u16 = server.address.rsplit(':').next().unwrap().parse().unwrap();
    let coordination =
        std::fs::read_to_string(server.data().join("zookeeper/zookeeper-port")).unwrap().trim().parse().unwrap();
    assert!(ports.contains(&proxy) && ports.contains(&coordination), "{ports:?}");
    // All at once: those that are only closed after a deadline wait for it together.
    let mut threads = Vec::new();
    for port in ports {
        let more = if port == coordination { zookeeper_attacks() } else { Vec::new() };
        for Attack { name, bytes, may_stay, reply } in attacks().into_iter().chain(more) {
            threads.push(std::thread::spawn(move || {
                let (closed, answer) = attack(port, &bytes, may_stay);
                let shown = text(&answer);
                assert!(closed || (may_stay && answer.len() > ANSWER_BYTES), "{name} on {port}: {closed} {shown}");
                assert!(port != proxy || shown.contains(reply), "{name}: reply {shown}");
            }));
        }
    }
    let outcomes: Vec<_> = threads.into_iter().map(std::thread::JoinHandle::join).collect();
    assert!(outcomes.iter().all(Result::is_ok), "see above");
    assert_eq!(state(&server), before);
    assert_eq!(server.say("SELECT 1"), "1");
    for (pid, before) in processes.iter().zip(memory) {
        let now = resident_bytes(*pid).unwrap();
        assert!(now < before + 60 * MIB, "process {pid} grew from {before} to {now} bytes");
    }
    assert_eq!(server.complaints(), Vec::<String>::new());
    assert!(server.stop().success());
}

/// A connection from another address of loopback.
fn connect_from(source: Ipv4Addr, port: u16) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let connected = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind((source, 0).into()).unwrap();
        socket.connect((Ipv4Addr::LOCALHOST, port).into()).await.unwrap().into_std().unwrap()
    });
    connected.set_nonblocking(false).unwrap();
    connected
}

#[test]
fn thousands_of_connections_come_and_go() {
    let mut server = Installation::with_an_engine();
    let before = state(&server);
    let port: u16 = server.address.rsplit(':').next().unwrap().parse().unwrap();
    let warm = resident_bytes(server.pid()).unwrap();
    for number in 0..3_000 {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        if number % 2 == 0 {
            stream.write_all(&sasl(b"admin")[..=number % 20]).unwrap();
        }
    }
    // Silent connections keep no other address out.
    let slow: Vec<TcpStream> = (0..300)
        .map(|_| {
            let mut stream = connect_from(Ipv4Addr::new(127, 0, 0, 2), port);
            stream.write_all(b"\x01").unwrap();
            stream
        })
        .collect();
    assert_eq!(server.say("SELECT 1"), "1");
    for mut stream in slow {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let closed = match stream.read_to_end(&mut Vec::new()) {
            Ok(_) => true,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        };
        assert!(closed, "a client that never authenticates stays connected for ever");
    }
    assert_eq!(state(&server), before);
    let now = resident_bytes(server.pid()).unwrap();
    assert!(now < warm + 40 * MIB, "standalone grew from {warm} to {now} bytes");
    assert_eq!(server.complaints(), Vec::<String>::new());
    assert!(server.stop().success());
}
