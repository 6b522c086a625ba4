//! Whatever arrives on any of its ports, a running installation answers with a clear error or closes the connection,
//! and goes on as it was: the same processes, the same catalog, no memory taken for what was only announced.
#![allow(clippy::unwrap_used, clippy::panic)]

mod installation;

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use hs2::tcli::{TCloseSessionReq, TExecuteStatementReq, THandleIdentifier, TSessionHandle};
use hs2::{Auth, Client, ClientOptions, Session};
use installation::{Installation, text};

/// Longer than the server waits for somebody to say who he is.
const PATIENCE: Duration = Duration::from_secs(15);

/// What must be as before.
fn state(server: &Installation) -> (Vec<u32>, u32, String) {
    let dump = [
        "SHOW CREATE TENANT t",
        "SHOW CREATE RESOURCE POOL p",
        "SHOW CREATE RESOURCE UNIT u",
        "SHOW TENANTS",
        "SHOW RESOURCE POOLS",
        "SHOW RESOURCE UNITS",
        "SHOW ALTERATIONS LIMIT 100",
    ];
    let dump = dump.map(|statement| server.say(statement)).join("\n");
    (server.engines(), server.pid(), dump)
}

fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

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
        let is_ours = fields.get(3) == Some(&"0A") && sockets.iter().any(|it| Some(&it.as_str()) == fields.get(9));
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

/// What comes, and whether the connection may stay open after it (an answer was given instead).
fn attacks() -> Vec<(&'static str, Vec<u8>, bool)> {
    let deep = b"\x0c\0\x01".repeat(200_000);
    vec![
        ("noise", noise(), false),
        ("zeros", vec![0; 5_000], false),
        ("TLS", [b"\x16\x03\x01".to_vec(), noise()].concat(), false),
        ("a page, please", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(), false),
        ("a huge POST", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999\r\n\r\n".to_vec(), false),
        ("endless header", [&b"POST / HTTP/1.1\r\nX: "[..], &b"x".repeat(1 << 20)].concat(), false),
        ("2 GB mechanism", b"\x01\x7f\xff\xff\xffPLAIN".to_vec(), false),
        ("2 GB proof", b"\x01\0\0\0\x05PLAIN\x05\x7f\xff\xff\xff".to_vec(), false),
        ("other mechanism", b"\x01\0\0\0\x06KERBER".to_vec(), false),
        ("a name that is no UTF-8", sasl(b"\xff\xfe"), false),
        ("half a handshake", b"\x01\0\0".to_vec(), false),
        ("2 GB frame", [sasl(b"admin"), b"\x7f\xff\xff\xff".to_vec()].concat(), false),
        ("4 GB frame", [sasl(b"admin"), b"\xff\xff\xff\xff".to_vec()].concat(), false),
        ("empty frame", [sasl(b"admin"), b"\0\0\0\0".to_vec()].concat(), false),
        ("2 GB method name", [sasl(b"admin"), b"\0\0\0\x08\x80\x01\0\x01\x7f\xff\xff\xff".to_vec()].concat(), false),
        ("deep structs", framed(b"OpenSession", &deep), true),
        ("deep structs, plain", call(b"OpenSession", &deep), false),
        ("a list of 2 G", framed(b"OpenSession", b"\x0c\0\x01\x0d\0\x04\x0b\x0b\x7f\xff\xff\xff"), true),
        ("a list of 2 G, plain", call(b"OpenSession", b"\x0c\0\x01\x0d\0\x04\x0b\x0b\x7f\xff\xff\xff"), false),
        ("a text of -1", framed(b"OpenSession", b"\x0c\0\x01\x0b\0\x02\xff\xff\xff\xff"), true),
        ("unknown method", framed(b"Explode", b"\0"), true),
        (
            "a handle of 3 bytes",
            framed(b"CloseSession", b"\x0c\0\x01\x0c\0\x01\x0c\0\x01\x0b\0\x01\0\0\0\x03aaa\0\0\0\0"),
            true,
        ),
    ]
}

/// Sends it and reads what comes back until the connection is closed or quiet; `true` if it was closed.
fn attack(port: u16, bytes: &[u8], quiet: Duration) -> (bool, Vec<u8>) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(quiet)).unwrap();
    // It may be closed before all is sent.
    let _ = stream.write_all(bytes);
    let (mut answer, mut piece) = (Vec::new(), [0_u8; 4_096]);
    loop {
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
    let memory: Vec<u64> = processes.iter().map(|pid| resident_kib(*pid)).collect();
    let ports: Vec<u16> = processes.iter().flat_map(|pid| ports_of(*pid)).collect();
    assert_eq!(ports.len(), 5, "proxy, metadata agent, ZooKeeper, engine agent, engine: {ports:?}");
    // All at once: those that are only closed after a deadline wait for it together.
    let mut threads = Vec::new();
    for port in &ports {
        for (name, bytes, may_stay) in attacks() {
            let port = *port;
            threads.push(std::thread::spawn(move || {
                let quiet = if may_stay { Duration::from_secs(3) } else { PATIENCE };
                let (closed, answer) = attack(port, &bytes, quiet);
                assert!(closed || (may_stay && answer.len() > 10), "{name} on {port}: {closed} {}", text(&answer));
            }));
        }
    }
    let outcomes: Vec<_> = threads.into_iter().map(std::thread::JoinHandle::join).collect();
    assert!(outcomes.iter().all(Result::is_ok), "see above");
    assert_eq!(state(&server), before);
    assert_eq!(server.say("SELECT 1"), "1");
    for (pid, before_kib) in processes.iter().zip(memory) {
        let now_kib = resident_kib(*pid);
        assert!(now_kib < before_kib + 60_000, "process {pid} grew from {before_kib} to {now_kib} KiB");
    }
    assert_eq!(server.complaints(), Vec::<String>::new());
    assert!(server.stop().success());
}

#[test]
fn thousands_of_connections_come_and_go() {
    let mut server = Installation::with_an_engine();
    let before = state(&server);
    let port: u16 = server.address.rsplit(':').next().unwrap().parse().unwrap();
    let warm = resident_kib(server.pid());
    for number in 0..3_000 {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        if number % 2 == 0 {
            stream.write_all(&sasl(b"admin")[..=number % 20]).unwrap();
        }
    }
    // Those that say nothing for long don't keep others out.
    let slow: Vec<TcpStream> = (0..300)
        .map(|_| {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            stream.write_all(b"\x01").unwrap();
            stream
        })
        .collect();
    assert_eq!(server.say("SELECT 1"), "1");
    for mut stream in slow {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let closed = match stream.read(&mut [0; 16]) {
            Ok(read) => read == 0,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        };
        assert!(closed, "one that does not say who he is stays for ever");
    }
    assert_eq!(state(&server), before);
    let now = resident_kib(server.pid());
    assert!(now < warm + 40_000, "standalone grew from {warm} to {now} KiB");
    assert_eq!(server.complaints(), Vec::<String>::new());
    assert!(server.stop().success());
}

async fn session(server: &Installation, user: &str) -> Session {
    let options = ClientOptions::new(server.address.clone(), Auth::user(user, ""));
    Session::open(Client::connect(&options).await.unwrap(), &[]).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handle_opens_nothing_for_anybody_else() {
    let server = Installation::with_an_engine();
    let owner = session(&server, "admin").await;
    let stolen = owner.handle().clone();
    let mut thief = session(&server, "ann").await;
    let mut twin = session(&server, "admin").await;
    let made_up = |guid: &[u8], secret: &[u8]| TSessionHandle {
        session_id: THandleIdentifier { guid: guid.to_vec(), secret: secret.to_vec() },
    };
    let wrong = [
        stolen.clone(),
        made_up(&stolen.session_id.guid, &[0; 16]),
        made_up(&[7; 16], &[7; 16]),
        made_up(b"short", b""),
    ];
    for handle in wrong {
        for other in [&mut thief, &mut twin] {
            let request = TExecuteStatementReq {
                session_handle: handle.clone(),
                statement: "SHOW TENANTS".to_owned(),
                conf_overlay: None,
                run_async: Some(true),
                query_timeout: None,
            };
            let error = other.client().execute_statement(&request).await.unwrap_err();
            assert!(!error.to_string().contains("panicked"), "{error}");
            let close = TCloseSessionReq { session_handle: handle.clone() };
            let closed = other.client().close_session(&close).await;
            assert!(closed.is_err(), "a session was closed by somebody else");
        }
    }
    let mut owner = owner;
    let table = owner.run("SHOW TENANTS", PATIENCE).await.unwrap();
    assert_eq!(table.rows.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_at_the_limits_are_answered() {
    let server = Installation::with_an_engine();
    let mut admin = session(&server, "admin").await;
    let before = state(&server);
    let long = |letters: usize| "x".repeat(letters);
    let huge = format!("CREATE TENANT big COMMENT '{}'", long(600 << 10));
    for (statement, sqlstate) in [
        (format!("CREATE TENANT {}", long(64)), "42602"),
        (format!("CREATE TENANT \"{}\"", "é".repeat(10)), "42602"),
        (huge, "54000"),
        (format!("SHOW ENGINES {}", long(5_000)), "42602"),
        ("SHOW ENGINES nobody".to_owned(), "42704"),
        (format!("ALTER TENANT t USER_LIST ({}'a')", "'a',".repeat(200_000)), "54000"),
    ] {
        let shown: String = statement.chars().take(60).collect();
        let error = admin.run(&statement, PATIENCE).await.unwrap_err();
        assert_eq!(error.user_error().sqlstate(), sqlstate, "{shown}: {error}");
    }
    assert_eq!(state(&server), before);
    // The longest name is a name.
    let name = long(63);
    admin.run(&format!("CREATE TENANT {name}"), PATIENCE).await.unwrap();
    admin.run(&format!("DROP TENANT {name}"), PATIENCE).await.unwrap();
    // Whoever is no admin is told the same of what exists and of what does not.
    let mut eve = session(&server, "eve").await;
    let mut told = Vec::new();
    for tenant in ["t", "nobody"] {
        let error = eve.run(&format!("SHOW ENGINES {tenant}"), PATIENCE).await.unwrap_err().user_error();
        assert_eq!(error.sqlstate(), "42501", "{}", error.text());
        told.push(error.text().replace(&format!("\"{tenant}\""), "X"));
    }
    assert_eq!(told[0], told[1]);
}
