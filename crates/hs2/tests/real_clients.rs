//! PyHive and impyla against a server of this crate: SASL PLAIN, plain Thrift and HTTP.
//!
//! `EH_TEST_PYTHON` names a Python that has both packages.
#![allow(clippy::unwrap_used, clippy::panic)]

mod number_server;

use std::process::Stdio;
use std::time::Duration;

use hs2::Limits;
use number_server::start;

const DEADLINE: Duration = Duration::from_mins(1);

const SCRIPT: &str = r#"
import sys
from impala import dbapi
from impala.error import HiveServer2Error
from pyhive import hive
from pyhive.exc import OperationalError

port = int(sys.argv[1])
expected = [(n, None if n % 3 == 0 else f"number {n}") for n in range(2500)]
checks = 0

def check(what, good):
    global checks
    if not good:
        sys.exit(f"failed: {what}")
    checks += 1

connection = hive.connect("127.0.0.1", port=port, username="alice")
cursor = connection.cursor()
cursor.execute("numbers 2500")
check("PyHive's description", [(c[0], c[1]) for c in cursor.description] == [("n", "BIGINT_TYPE"), ("text", "STRING_TYPE")])
check("PyHive's rows", cursor.fetchall() == expected)
try:
    cursor.execute("fail")
    check("PyHive's error", False)
except OperationalError as error:
    status = error.args[0].status
    check("PyHive's sqlState", status.sqlState == "42P01")
    check("PyHive's message", status.errorMessage == 'table "x" does not exist\nDetail: there are 2 tables\nHint: SHOW TABLES')
    check("PyHive's infoMessages", status.infoMessages is None)
cursor.execute("wait", async_=True)
check("PyHive's state", cursor.poll().operationState == 1)
check("PyHive's logs", cursor.fetch_logs() == ["line 0 of wait", "line 1 of wait", "line 2 of wait"])
cursor.cancel()
check("PyHive's cancelled state", cursor.poll().operationState == 3)
connection.close()
try:
    hive.connect("127.0.0.1", port=port, username="mallory")
    check("PyHive as mallory", False)
except Exception as error:
    check("PyHive as mallory", 'user "mallory" may not connect' in str(error))

for name, options in [
    ("SASL", {"auth_mechanism": "PLAIN"}),
    ("plain Thrift", {"auth_mechanism": "NOSASL"}),
    ("HTTP", {"auth_mechanism": "PLAIN", "use_http_transport": True, "http_path": "cliservice"}),
]:
    connection = dbapi.connect("127.0.0.1", port, user="alice", password="x", **options)
    cursor = connection.cursor()
    cursor.execute("numbers 2500")
    check(f"impyla's rows over {name}", cursor.fetchall() == expected)
    # GetLog is a method that the server doesn't have; the connection must survive that.
    try:
        cursor.get_log()
    except Exception:
        pass
    try:
        cursor.execute("fail")
        check(f"impyla's error over {name}", False)
    except HiveServer2Error as error:
        check(f"impyla's message over {name}", 'table "x" does not exist' in str(error))
    cursor.execute("numbers 3")
    check(f"impyla's rows after an error over {name}", cursor.fetchall() == expected[:3])
    cursor.close()
    connection.close()
print(f"{checks} checks")
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs EH_TEST_PYTHON"]
async fn pyhive_and_impyla_are_served_over_every_transport() {
    let python = std::env::var("EH_TEST_PYTHON").expect("EH_TEST_PYTHON must name a Python with PyHive and impyla");
    let server = start(Limits::default()).await;
    let script = tokio::process::Command::new(python)
        .args(["-c", SCRIPT, &server.address.port().to_string()])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(DEADLINE, script).await.expect("the script ends in time").unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    assert_eq!(out.trim(), "18 checks", "{err}");
    server.stop().await;
}
