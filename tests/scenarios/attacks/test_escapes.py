"""C16: text that would forge lines of a log, or control the terminal that shows it."""

import functools
import json
import re
import urllib.parse

from harness.attacked import basic, password_of
from harness.clients import rows, sqlstate_of
from harness.processes import run
from harness.transports import TRANSPORTS, Http, Refused, Sasl
from harness.waiting import wait_until

FORGED = "2026-01-01T00:00:00.000000Z ERROR forged: by c16"
# A line of its own, colors, a bell, and the eight-bit form of ESC [.
EVIL = f"\r\n{FORGED}\x1b[31m\x07\x7f\u009b31m"
MIB = 1024 * 1024
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
# A line of a log: the time, the level, and what follows in one line.
LINE = re.compile(r"\d{4}-\d\d-\d\dT\S+Z +(ERROR|WARN|INFO|DEBUG|TRACE) [^\x00-\x1f\x7f-\x9f]*")
LONGEST_LINE_BYTES = 64 * 1024
LOGGED_WITHIN_S = 30
JSON = {"Content-Type": "application/json"}

# Each has the marker `{at}`; the text goes to `{evil}`. What is stored is dropped by the last ones.
STATEMENTS = [
    "/* {evil} */ STOP ENGINE shared '{at}'",
    "--{at} {evil}\nSHOW TENANTS",
    "STOP ENGINE shared '{at}{evil}'",
    "STOP ENGINE \"{at}{evil}\" 'x'",
    'START ENGINE "{at}{evil}" shared small',
    "DROP TENANT `{at}{evil}`",
    'DROP TENANT IF EXISTS "{at}{evil}"',
    "SHOW TENANTS LIKE '{at}{evil}'",
    "SHOW AUDIT FOR USER '{at}{evil}'",
    "START ENGINE sales shared small WAIT '{at}{evil}'",
    "CREATE RESOURCE UNIT c16 COMMENT '{at}{evil}'",
    "ALTER RESOURCE UNIT c16 PROPERTIES ('a'='{at}{evil}')",
    "ALTER RESOURCE UNIT c16 PROPERTIES ('{at}{evil}'='b')",
    "CREATE RESOURCE POOL c16 COMMENT '{at}{evil}'",
    "ALTER RESOURCE POOL c16 NODE_LIST ('{at}{evil}')",
    "ALTER RESOURCE POOL c16 NODE_SELECTOR ('{at}{evil}'='a')",
    "ALTER RESOURCE POOL c16 IMAGE '{at}{evil}'",
    "ALTER RESOURCE POOL c16 NAMESPACE '{at}{evil}'",
    "ALTER RESOURCE POOL c16 QUEUE_PREFIX '{at}{evil}'",
    "CREATE TENANT c16 COMMENT '{at}{evil}'",
    "ALTER TENANT c16 USER_LIST ('{at}{evil}')",
    "ALTER TENANT c16 ADMIN_LIST ('@{at}{evil}')",
    "ALTER TENANT c16 DEFAULT_UNIT '{at}{evil}'",
]
SHOWN = [
    "SHOW RESOURCE UNITS",
    "SHOW RESOURCE POOLS",
    "SHOW TENANTS",
    "DESCRIBE RESOURCE UNIT c16",
    "DESCRIBE RESOURCE POOL c16",
    "DESCRIBE TENANT c16",
    "SHOW CREATE RESOURCE UNIT c16",
    "SHOW CREATE RESOURCE POOL c16",
    "SHOW CREATE TENANT c16",
    "SHOW ALTERATIONS LIMIT 30",
    "SHOW AUDIT LIMIT 60",
]
DROPS = ["DROP RESOURCE UNIT IF EXISTS c16", "DROP RESOURCE POOL IF EXISTS c16", "DROP TENANT IF EXISTS c16"]


def lines_with(target, text):
    logged = target.logs.bytes_since_begin().values()
    return [line for each in logged for line in each.decode().split("\n") if text in line]


def wrong_lines(target):
    """Lines of any log that are no line, or too long; a file that ends without a line's end is being written."""
    wrong = []
    for path, logged in target.logs.bytes_since_begin().items():
        for line in logged.decode().split("\n")[:-1]:
            if not LINE.fullmatch(line) or line.startswith(FORGED[:20]):
                wrong.append(f"{path}: {line!r:.300}")
            if len(line) > LONGEST_LINE_BYTES:
                wrong.append(f"{path}: a line of {len(line)} characters: {line!r:.100}")
    return wrong


def log_in(connect, target, user, settings=None, **options):
    with connect(target, user, **options) as connection:
        connection.open(**(settings or {}))


def outcome(attempt):
    """What a client is received; None if the attempt succeeded."""
    try:
        attempt()
    except Refused as refused:
        return refused.args
    except (AssertionError, OSError) as closed:
        return (repr(closed),)
    return None


def check_audited(target, what, text, event, wrong):
    """The event has one line, and it is the only one with the text."""
    lines = wait_until(lambda: lines_with(target, text), LOGGED_WITHIN_S, f"a line with {text}: {what}")
    if len(lines) != 1 or f'event="{event}"' not in lines[0]:
        wrong.append(f"{what}: {lines}")


def attempt_logins(target, wrong):
    """A user name over each transport, each from an address of its own. One that is no name has no place in the log."""
    for at, (transport, connect) in enumerate(TRANSPORTS.items()):
        for kind, user in enumerate((f"c16{EVIL}", 'c16" via="admin')):
            address = f"127.0.16.{10 * at + kind + 1}"
            received = outcome(lambda: log_in(connect, target, user, source=address))
            if "authentication failed" not in str(received):
                wrong.append(f"login as {user!r} over {transport}: {received}")
            check_audited(target, f"login as {user!r} over {transport}", f"address={address} ", "login_failed", wrong)
        received = outcome(lambda: log_in(connect, target, "c16" + "a" * MIB, source=f"127.0.16.{10 * at + 9}"))
        if received is None:
            wrong.append(f"login with 1 MiB over {transport}")
    if len(lines_with(target, 'user="c16\\" via=\\"admin"')) != len(TRANSPORTS):
        wrong.append(f"quotes are not escaped: {lines_with(target, 'via=')}")


def attempt_impersonations(target, wrong):
    etl = functools.partial(log_in, target=target, user="etl")
    named = {
        "a setting": lambda user: etl(Sasl, source="127.0.16.101", settings={"hive.server2.proxy.user": user}),
        "the authorization id": lambda user: etl(Sasl, source="127.0.16.102", authzid=user),
        "the URL": lambda user: etl(Http, source="127.0.16.103", query=f"doAs={urllib.parse.quote(user)}"),
    }
    for at, (where, attempt) in enumerate(named.items()):
        for kind, user in ("target", f"c16-target-{at}{EVIL}"), ("quotes", f'c16-quotes-{at}" via="admin'):
            received = outcome(functools.partial(attempt, user))
            if "not allowed to impersonate" not in str(received):
                wrong.append(f"target {user!r} by {where}: {received}")
            check_audited(target, f"target by {where}", f"c16-{kind}-{at}", "impersonation_refused", wrong)


def attempt_settings(target, wrong):
    """Keys and values of a session's settings, and of a statement's own."""
    with Sasl(target, "alice") as connection:
        session = connection.open()
        for at, (key, value) in enumerate(((f"c16{EVIL}", "x"), ("c16", EVIL), ("c16\0", "\0"), (f"enginehouse.{EVIL}", "x"))):
            for text in EVIL, "a" * MIB:
                long_key, long_value = key.replace(EVIL, text), value.replace(EVIL, text)
                opened = connection.try_open(**{long_key: long_value})
                if opened.sessionHandle:
                    connection.close_session(opened.sessionHandle)
                if len(text) == MIB and EVIL in key + value and opened.sessionHandle:
                    wrong.append(f"setting {at} of 1 MiB was accepted")
                connection.execute(session, "SELECT 1", {long_key: long_value})
        for key in ("tenant", "pool", "unit", "queue", "statement_timeout"):
            opened = connection.try_open(**{f"enginehouse.{key}": f"c16{EVIL}"})
            if opened.status.sqlState not in ("42602", "42704", "22023", "42501"):
                wrong.append(f"enginehouse.{key}: {opened.status}")
            connection.execute(session, f"SET enginehouse.{key}=c16{EVIL}")
        for statement in (f"SELECT * FROM `c16{EVIL}`", f"USE `c16{EVIL}`", f"SET c16{EVIL}=1", f"SELECT c16 {EVIL}"):
            connection.execute(session, statement)


def attempt_statements(target, wrong):
    """Control statements with the text in every place, and what shows it."""
    with target.session("admin") as admin:
        for kind in ("RESOURCE UNIT", "RESOURCE POOL", "TENANT"):
            rows(admin, f"CREATE {kind} c16 COMMENT 'ünïcode'")
        for at, statement in enumerate(STATEMENTS):
            for kind, evil in ("evil", EVIL), ("nul", "\0"), ("long", "a" * MIB):
                received = sqlstate_of(admin, statement.format(at=f"c16-{kind}-{at}-", evil=evil))
                if kind != "long" and "{at}{evil}" in statement and received != "22023":
                    wrong.append(f"{statement} with {kind}: {received}")
        for statement in SHOWN:
            for row in rows(admin, statement):
                for column, cell in row.items():
                    # SHOW CREATE prints a clause on each line.
                    shown = cell.replace("\n  ", "") if statement.startswith("SHOW CREATE") else cell
                    if isinstance(shown, str) and CONTROL.search(shown):
                        wrong.append(f"{statement}: {column} is {cell!r:.300}")


def check_statements(target, wrong):
    """Each of them has one row of the audit and one line, or none of both."""
    wait_until(lambda: lines_with(target, DROPS[-1]), LOGGED_WITHIN_S, "the last statement is logged")
    audited = [row["statement"] for row in target.execute("SHOW AUDIT LIMIT 100")]
    for at, statement in enumerate(STATEMENTS):
        for kind in ("evil", "nul", "long"):
            marker = f"c16-{kind}-{at}-"
            lines = [line for line in lines_with(target, marker) if " audit: " in line]
            if len(lines) != sum(marker in it for it in audited) or len(lines) > 1:
                wrong.append(f"{marker} {statement}: {len(lines)} lines of the audit")


def attempt_terminal(target, wrong):
    """What `enginehouse sql` prints of it, and of its own statements."""
    client = ["sql", "--url", target.address, "--ca", target.certificate.certificate, "-u", "admin", "-e"]
    for statement in ("SHOW AUDIT LIMIT 60", "SHOW ALTERATIONS LIMIT 30", f"STOP ENGINE shared 'c16{EVIL}'"):
        done = run([*client, statement], env={"ENGINEHOUSE_PASSWORD": password_of("admin")})
        printed = done.stdout + done.stderr
        assert printed, statement
        if found := CONTROL.search(printed.replace("\n", "")):
            wrong.append(f"`enginehouse sql` of {statement!r:.40} prints {found[0]!r}")


def attempt_rest(target, wrong):
    """Bodies of JSON have every control character escaped; a header or a path with one is refused."""
    for statement in (*SHOWN, f"STOP ENGINE shared 'c16{EVIL}'", f"DROP TENANT `{EVIL}`", f"/* {EVIL} */ SHOW TENANTS"):
        status, headers, body = target.http("POST", "/api/v1/statements", json.dumps({"statement": statement}), "admin", JSON)
        if re.search(rb"[\x00-\x1f]", body) or CONTROL.search("".join(headers.values())):
            wrong.append(f"{statement!r:.60} over REST: {status} {headers} {body!r:.200}")
    for variant, head, expected in heads():
        received = answer_to(target, f"{head}\r\nConnection: close\r\n\r\n{{}}".encode("latin-1"))
        first, _, body = received.partition(b"\r\n\r\n")
        statuses = re.findall(rb"HTTP/1.1 (\d+)", received)
        # A client that still sends what was refused early may lose the answer.
        is_lost = not received and len(head) > MIB
        if statuses != [expected] and not is_lost:
            wrong.append(f"{variant}: {received!r:.300}")
        if re.search(rb"[\x00-\x1f\x7f]", first.replace(b"\r\n", b"") + body) or b"\r\nc16-field" in received:
            wrong.append(f"{variant} is in the response: {received!r:.300}")


def answer_to(target, request):
    try:
        return target.raw(request, source="127.0.16.41")
    except OSError:
        return b""


def heads():
    """Heads of requests with the bytes in each place, and the status that each gets."""
    credentials = f"Host: localhost\r\nAuthorization: {basic('admin', password_of('admin'))}"
    post = f"POST /api/v1/engines HTTP/1.1\r\n{credentials}\r\nContent-Type: application/json\r\nContent-Length: 2"
    get = f"GET /api/v1/tenants HTTP/1.1\r\n{credentials}"
    for name, evil in ("ESC", "\x1b[31m"), ("NUL", "\0"), ("BEL", "\x07"), ("DEL", "\x7f"), ("CR", "\rc16-field: y"):
        yield f"User-Agent with {name}", f"{get}\r\nUser-Agent: c16{evil}", b"400"
        yield f"Idempotency-Key with {name}", f"{post}\r\nIdempotency-Key: c16{evil}", b"400"
        yield f"path with {name}", f"GET /api/v1/tenants/c16{evil} HTTP/1.1\r\n{credentials}", b"400"
    yield "Idempotency-Key with C1", f"{post}\r\nIdempotency-Key: c16\x9b31m", b"400"
    yield "Idempotency-Key of 256 bytes", f"{post}\r\nIdempotency-Key: {'k' * 256}", b"400"
    for name, evil in (
        ("a line", "%0d%0ac16-field:%20y"),
        ("ESC", "%1b%5b31m"),
        ("NUL", "%00"),
        ("C1", "%c2%9b"),
        ("no UTF-8", "%9b"),
    ):
        yield f"engine with escaped {name}", f"GET /api/v1/engines/shared/c16{evil} HTTP/1.1\r\n{credentials}", b"400"
        yield f"path with escaped {name}", f"GET /api/v1/c16{evil} HTTP/1.1\r\n{credentials}", b"404"
    yield "User-Agent of 1 MiB", f"{get}\r\nUser-Agent: {'a' * MIB}", b"431"
    yield "path of 1 MiB", f"GET /api/v1/{'a' * MIB} HTTP/1.1\r\n{credentials}", b"431"


def test_c16_text_of_clients_makes_no_line_and_no_control_character(target):
    """Newlines, ANSI sequences, NUL, other control characters and 1 MiB over every transport: refused or escaped. Each event is
    one line of a log; SHOW, the audit and JSON have no control character."""
    wrong = []
    try:
        attempt_logins(target, wrong)
        attempt_impersonations(target, wrong)
        attempt_settings(target, wrong)
        attempt_statements(target, wrong)
        attempt_terminal(target, wrong)
        attempt_rest(target, wrong)
    finally:
        for statement in DROPS:
            target.execute(statement)
    check_statements(target, wrong)
    wrong += wrong_lines(target)
    assert not wrong, "\n".join([f"{len(wrong)} attempts had an effect", *wrong[:60]])
