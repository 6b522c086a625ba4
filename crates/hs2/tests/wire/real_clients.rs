//! BeeLine, PyHive and impyla against a server of this crate: SASL PLAIN, plain Thrift and HTTP.
//!
//! `EH_TEST_PYTHON` names a Python that has PyHive, impyla and pyspark, whose jars are BeeLine and Hive's JDBC driver.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::process::Stdio;
use std::time::Duration;

use crate::number_server::start;
use hs2::Limits;

const DEADLINE: Duration = Duration::from_mins(1);

fn python() -> String {
    std::env::var("EH_TEST_PYTHON").expect("EH_TEST_PYTHON must name a Python with PyHive, impyla and pyspark")
}

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
try:
    cursor.execute("x" * (17 << 20))
    check("PyHive's long statement", False)
except OperationalError as error:
    status = error.args[0].status
    check("PyHive's sqlState of a long statement", status.sqlState == "54000")
    check("PyHive's message of it", status.errorMessage.startswith("request ExecuteStatement too long"))
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
    # The server does not have the method GetLog; the connection must survive the call.
    try:
        cursor.get_log()
    except Exception:
        pass
    try:
        cursor.execute("fail")
        check(f"impyla's error over {name}", False)
    except HiveServer2Error as error:
        check(f"impyla's message over {name}", 'table "x" does not exist' in str(error))
    if name != "SASL":
        # These end with the answer to what is too long.
        lasts = dbapi.connect("127.0.0.1", port, user="alice", password="x", **options)
    else:
        lasts = connection
    try:
        lasts.cursor().execute("x" * (17 << 20))
        check(f"impyla's long statement over {name}", False)
    except HiveServer2Error as error:
        check(f"impyla's long statement over {name}", "request ExecuteStatement too long" in str(error))
    cursor.execute("numbers 3")
    check(f"impyla's rows after an error over {name}", cursor.fetchall() == expected[:3])
    cursor.close()
    connection.close()
print(f"{checks} checks")
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs EH_TEST_PYTHON"]
async fn pyhive_and_impyla_are_served_over_every_transport() {
    let server = start(Limits::default()).await;
    let script = tokio::process::Command::new(python())
        .args(["-c", SCRIPT, &server.address.port().to_string()])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(DEADLINE, script).await.expect("the script ends in time").unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    assert_eq!(out.trim(), "23 checks", "{err}");
    server.stop().await;
}

/// What BeeLine prints: standard output and standard error.
async fn beeline(url: &str, user: &str, statements: &[&str]) -> (String, String) {
    let jars = "import os, pyspark; print(os.path.join(os.path.dirname(pyspark.__file__), 'jars', '*'))";
    let jars = tokio::process::Command::new(python()).args(["-c", jars]).output().await.unwrap();
    let mut command = tokio::process::Command::new("java");
    command.args(["-cp", String::from_utf8(jars.stdout).unwrap().trim(), "org.apache.hive.beeline.BeeLine"]);
    command.args(["-u", url, "-n", user, "-p", "x", "--outputformat=csv2", "--force=true"]);
    for statement in statements {
        command.args(["-e", statement]);
    }
    let running = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = tokio::time::timeout(DEADLINE, running).await.expect("BeeLine ends in time").unwrap();
    // After an error it writes its prompt before what comes next.
    let out = String::from_utf8(output.stdout).unwrap();
    let out: Vec<&str> =
        out.lines().map(|line| line.rsplit(". > ").next().unwrap()).filter(|line| !line.is_empty()).collect();
    (out.join("\n"), String::from_utf8(output.stderr).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs EH_TEST_PYTHON"]
async fn beeline_is_served_over_every_transport() {
    let server = start(Limits::default()).await;
    let address = server.address;
    for options in ["", ";auth=noSasl", ";transportMode=http;httpPath=cliservice"] {
        let url = format!("jdbc:hive2://{address}/{options}");
        let (out, err) = beeline(&url, "alice", &["numbers 2500", "fail", "numbers 3"]).await;
        let rows = |count: i64| {
            let row = |n| if n % 3 == 0 { format!("{n},NULL\n") } else { format!("{n},number {n}\n") };
            format!("n,text\n{}", (0..count).map(row).collect::<String>())
        };
        assert_eq!(out, format!("{}{}", rows(2500), rows(3)).trim(), "{url}\n{err}");
        assert!(err.contains("table \"x\" does not exist") && err.contains("state=42P01"), "{url}\n{err}");
        assert!(err.contains("Hint: SHOW TABLES"), "{url}\n{err}");
    }
    let (_, err) = beeline(&format!("jdbc:hive2://{address}/"), "mallory", &["numbers 1"]).await;
    assert!(err.contains("user \"mallory\" may not connect"), "{err}");
    server.stop().await;
}
