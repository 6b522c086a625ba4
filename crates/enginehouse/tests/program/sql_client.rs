//! `enginehouse sql` as a person and as a script use it, against a real server.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::time::Duration;

use tests::resident_set::resident_bytes;

use crate::installation::{
    DEADLINE, Installation, PROGRAM, Signal, cpu_ticks, ended, eventually, program, read_all, signal, text, works,
};

const MIB: usize = 1 << 20;

/// Runs with these arguments: exit status, standard output, standard error.
fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let output = command.output().unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// The output of a client that succeeded. It contains the log of a statement that takes long, as any may on a busy machine.
fn printed((status, out, error): (Option<i32>, String, String)) -> String {
    assert!(status == Some(0) && !error.contains("error"), "{status:?} {error}");
    out
}

/// The client with a URL.
fn at(url: &str, more: &[&str]) -> (Option<i32>, String, String) {
    run(program().args(["sql", "--format", "csv", "--url", url]).args(more))
}

#[test]
fn results_come_in_every_format_with_nulls_and_any_letters() {
    let server = Installation::with_an_engine();
    let statement = "SELECT 2 AS b, CAST(NULL AS varchar) AS a, 'ü€中\t, \" x' AS c, '' AS d, 1.5e0 AS e, true AS f";
    let print = |format: &str| printed(run(server.sql().args(["--format", format, "-e", statement])));
    // The last --format counts.
    assert_eq!(print("csv"), "b,a,c,d,e,f\n2,,\"ü€中\t, \"\" x\",\"\",1.5,true\n");
    assert_eq!(print("json"), "{\"b\":2,\"a\":null,\"c\":\"ü€中\\t, \\\" x\",\"d\":\"\",\"e\":1.5,\"f\":true}\n");
    let table = print("table");
    assert!(
        table.contains("│ b ┆ a    ┆ c") && table.contains("│ 2 ┆ NULL ┆ ü€中") && table.contains("1 row\n"),
        "{table}"
    );
    assert_eq!(print("csv").lines().count(), 2);
    let same = "SELECT x.v, y.v FROM (VALUES (1)) x(v), (VALUES (2)) y(v)";
    let (_, out, _) = run(server.sql().args(["--format", "json", "-e", same]));
    assert_eq!(out, "{\"v\":1,\"v_2\":2}\n");
}

#[test]
fn statements_come_from_the_command_line_a_file_or_standard_input() {
    let server = Installation::with_an_engine();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.sql");
    std::fs::write(&file, "\u{feff}SELECT 1 AS a;\r\n-- a remark; with a semicolon\r\nSELECT ';' AS b\r\n").unwrap();
    let all = printed(run(server.sql().args(["-e", "SELECT 3 AS c; SELECT 4 AS d", "-f"]).arg(&file)));
    assert_eq!(all, "c\n3\nd\n4\na\n1\nb\n;\n");
    let mut child = server.sql().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"SELECT 1 AS a;\nSELECT 2 AS b").unwrap();
    assert!(ended(&mut child, DEADLINE).success());
    assert_eq!(read_all(child.stdout.take()), "a\n1\nb\n2\n");
    for nothing in ["", " ; ;; ", "-- only a remark"] {
        assert_eq!(run(server.sql().args(["-e", nothing])), (Some(0), String::new(), String::new()), "{nothing:?}");
    }
}

#[test]
fn the_first_error_ends_a_script_and_has_its_position() {
    let server = Installation::with_an_engine();
    let script = "SELECT 1 AS a;\n\nSELECT nope\n  FROM nowhere;\nSELECT 3";
    let (status, out, error) = run(server.sql().args(["-e", script]));
    assert_eq!((status, &*out), (Some(1), "a\n1\n"));
    assert!(error.starts_with("error 42P01: ") || error.starts_with("error 42703: "), "{error}");
    assert!(error.contains("in line 3: SELECT nope FROM nowhere"), "{error}");
    let (status, _, error) = run(server.sql().args(["-e", "SHOW RESOURCE POOL p FRO TENANT"]));
    assert_eq!(status, Some(1));
    assert!(error.starts_with("error 42601: ") && error.contains("FOR"), "{error}");
    let (status, _, error) = run(server.sql().args(["-f", "/nowhere.sql"]));
    assert!(status == Some(1) && error.contains("cannot read /nowhere.sql"), "{error}");
}

#[test]
fn a_url_of_the_driver_is_understood() {
    let server = Installation::with_an_engine();
    let here = &server.address;
    let select = ["-e", "SELECT 1 AS a"];
    let good = [
        format!("jdbc:hive2://{here}/"),
        format!("jdbc:hive2://{here}/;auth=noSasl"),
        format!("jdbc:hive2://{here}/;user=ann;password=x"),
        format!("jdbc:hive2://{here}/;auth=noSasl?enginehouse.tenant=t"),
        format!("jdbc:hive2://{here}/default?enginehouse.tenant=t;enginehouse.pool=p#enginehouse.unit=u"),
    ];
    for url in good {
        assert_eq!(printed(at(&url, &select)), "a\n1\n", "{url}");
    }
    for (url, more, expected) in [
        (format!("jdbc:hive2://{here}/?enginehouse.tenant=nope"), &select, "error 42704: tenant \"nope\""),
        (format!("jdbc:hive2://{here}/nowhere"), &select, "schema \"nowhere\" does not exist"),
        (format!("jdbc:hive2://{here}/;user=eve"), &select, "error 42501: user \"eve\" belongs to no tenant"),
        (format!("jdbc:hive2://{here}/;user=eve?enginehouse.tenant=t"), &select, "error 42501: "),
        (format!("jdbc:hive2://{here}/;transportMode=http"), &select, "of the URL is not supported"),
        (format!("http://{here}/"), &select, "invalid address"),
        ("127.0.0.1:1".to_owned(), &select, "could not connect to 127.0.0.1:1"),
    ] {
        let (status, out, error) = at(&url, more);
        assert_eq!((status, &*out), (Some(1), ""), "{url}");
        assert!(error.contains(expected), "{url}: {error}");
    }
    let (status, _, error) = at(here, &["-u", "", "-e", "SELECT 1"]);
    assert!(status == Some(1) && error.contains("user name is empty"), "{error}");
}

#[test]
fn a_million_rows_pass_through_without_being_held() {
    let server = Installation::with_an_engine();
    let statement = "SELECT value AS n, 'row ' || value AS s FROM generate_series(1, 1000000)";
    let mut child = server.sql().args(["-e", statement]).stdout(Stdio::piped()).spawn().unwrap();
    let pids = [child.id(), server.pid()];
    let (mut out, mut piece) = (child.stdout.take().unwrap(), vec![0_u8; 1 << 20]);
    let (mut bytes, mut lines, mut largest, mut last) = (0, 0, 0, Vec::new());
    loop {
        let read = out.read(&mut piece).unwrap();
        if read == 0 {
            break;
        }
        bytes += read;
        lines += text(&piece[..read]).matches('\n').count();
        last = piece[..read].to_vec();
        // The client may have ended.
        largest = pids.iter().filter_map(|pid| resident_bytes(*pid).ok()).fold(largest, usize::max);
    }
    assert!(ended(&mut child, DEADLINE).success());
    assert_eq!(lines, 1_000_001);
    assert!(text(&last).ends_with("1000000,row 1000000\n"), "{bytes} bytes");
    println!("{bytes} bytes passed, the client and standalone held {} MiB at most", largest / MIB);
    assert!(largest > MIB && largest < 150 * MIB, "{largest} bytes");
}

#[test]
fn wide_values_arrive_whole() {
    let server = Installation::with_an_engine();
    let wide = "SELECT repeat('é', 1000000) AS wide FROM generate_series(1, 5)";
    let out = printed(run(server.sql().args(["-e", wide])));
    assert!(out.lines().skip(1).all(|line| line.len() == 2_000_000) && out.lines().count() == 6);
    // A statement of a megabyte is a statement.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("long.sql");
    let mut long = "SELECT length('".to_owned();
    write!(long, "{}') AS l", "x".repeat(1 << 20)).unwrap();
    std::fs::write(&file, long).unwrap();
    assert_eq!(printed(run(server.sql().arg("-f").arg(&file))), "l\n1048576\n");
}

#[test]
fn ctrl_c_cancels_the_statement_at_the_server_and_ends_the_script() {
    let server = Installation::with_an_engine();
    let endless = "SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b";
    let long = "SELECT value FROM generate_series(1, 1000000000)";
    let engine = server.engines()[0];
    for statement in [endless, long] {
        let script = format!("{statement}; SELECT 'not reached'");
        let mut child =
            server.sql().args(["-e", &script]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut out = child.stdout.take().unwrap();
        let reader = std::thread::spawn(move || {
            let (mut kept, mut piece) = (Vec::new(), vec![0_u8; 1 << 16]);
            while let Ok(read @ 1..) = out.read(&mut piece) {
                kept = piece[..read].to_vec();
            }
            text(&kept)
        });
        works(engine);
        signal(child.id(), Signal::INT);
        let status = ended(&mut child, DEADLINE);
        let error = read_all(child.stderr.take());
        assert_eq!(status.code(), Some(130), "{error}");
        assert!(error.contains("error 57014: ") && error.contains("in line 1: SELECT"), "{error}");
        assert!(!reader.join().unwrap().contains("not reached"));
        eventually("the engine rests", || {
            let before = cpu_ticks(engine);
            std::thread::sleep(Duration::from_millis(300));
            cpu_ticks(engine) - before <= 3
        });
    }
    assert_eq!(server.say("SELECT 1"), "1");
}

#[test]
fn a_reader_that_has_seen_enough_ends_the_client_without_words() {
    let server = Installation::with_an_engine();
    let long = "SELECT value FROM generate_series(1, 10000000)";
    let mut child = server.sql().args(["-e", long]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0_u8; 5];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(ended(&mut child, DEADLINE).code(), Some(1));
    let error = read_all(child.stderr.take());
    assert!(!error.contains("panicked") && !error.contains("pipe"), "{error}");
}

#[test]
fn an_interactive_session_survives_errors_and_keeps_history() {
    let server = Installation::with_an_engine();
    let folder = tempfile::tempdir().unwrap();
    let history = folder.path().join("history");
    // script(1) gives the client a terminal.
    let typed = "SELECT 20 +\n 22 AS sum;\nSELECT nope;\nSET a = 1;\nSELECT 'still', 'here';\nexit\n";
    let mut command = Command::new("script");
    let line = format!("{PROGRAM} sql --url {}", server.address);
    command.args(["-qfec", &line, "/dev/null"]).env("ENGINEHOUSE_HISTORY", &history).env("TERM", "xterm");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = child.stdout.take().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut piece = [0_u8; 4_096];
        while let Ok(read @ 1..) = output.read(&mut piece) {
            let _ = sender.send(text(&piece[..read]));
        }
    });
    let mut shown = String::new();
    let wait_for = |what: &str, shown: &mut String| {
        while !shown.contains(what) {
            let more = receiver.recv_timeout(DEADLINE);
            *shown += &more.unwrap_or_else(|_| panic!("no {what:?} in {shown}"));
        }
    };
    wait_for("enginehouse> ", &mut shown);
    input.write_all(typed.as_bytes()).unwrap();
    for expected in ["connected to", "...> ", "42", "error 42703", "still"] {
        wait_for(expected, &mut shown);
    }
    assert!(ended(&mut child, DEADLINE).success(), "{shown}");
    let history = std::fs::read_to_string(history).unwrap();
    assert!(history.contains("SELECT nope;") && history.contains("SELECT 'still', 'here';"), "{history}");
}
