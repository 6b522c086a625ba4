"""C12: settings of a client that would choose the code, the files or the environment of an engine."""

import pathlib
import re

from impala_thrift_gen.TCLIService import ttypes

from harness.transports import TRANSPORTS

KEYS = [
    "spark.jars",
    "spark.jars.packages",
    "spark.files",
    "spark.archives",
    "spark.plugins",
    "spark.submit.pyFiles",
    "spark.driver.extraJavaOptions",
    "spark.driver.extraClassPath",
    "spark.driver.defaultJavaOptions",
    "spark.executor.extraJavaOptions",
    "spark.extraListeners",
    "spark.kubernetes.container.image",
    "spark.kubernetes.driver.podTemplateFile",
    "env:PATH",
    "env:LD_PRELOAD",
]
PREFIXES = [
    "",
    "set:",
    "set:hiveconf:",
    "set:hivevar:",
    "set:system:",
    "set:hivevar:hiveconf:",
    "hiveconf:",
    "hivevar:",
    "sparkconf:",
]
SPACED = [" {} ", "set:hiveconf: {}", "\tset: hiveconf:{}\n"]
STATEMENTS = [
    "SET {}=/tmp/x.jar",
    "set {} = '/tmp/x.jar' ;",
    '/* c */ SET\n{}\t= "/tmp/x.jar" -- c',
    "SET {}=",
    "SET {} TO '/tmp/x.jar'",
    "SET `{}`=/tmp/x.jar",
    "SET `{}` = '/tmp/x.jar';",
    "SET \"{}\" = '/tmp/x.jar'",
]
REFUSED = re.compile(r"setting \".+\" must not (choose code or files of the engine|change the engine's environment)\n", re.I)
# What DESCRIBE ENGINE counts, and what changes with time.
COUNTED = {"sessions", "stateful sessions", "running", "idle since", "release at", "age", "observed at"}
COUNTED |= {"sessions that prevent a drain"}


def spellings():
    """Every key bare and as in a URL of JDBC, and some with each prefix; in three cases."""
    some = ("spark.jars", "spark.driver.extraJavaOptions", "env:PATH")
    spelled = [f"{prefix}{key}" for key in KEYS for prefix in (PREFIXES if key in some else ("", "set:hiveconf:"))]
    return [each for key in spelled for each in (key, key.upper(), key.title())]


def launched(target):
    """How each engine runs: its command line, its environment, its files, and its description."""
    found = {}
    for name, engine in target.standalone.engines.all().items():
        process = pathlib.Path(f"/proc/{engine.pid}")
        described = target.execute(f"DESCRIBE ENGINE shared '{name}'")
        found[name] = {
            "process": engine.process,
            "command line": (process / "cmdline").read_bytes(),
            "environment": (process / "environ").read_bytes(),
            "record": engine.record,
            "properties": {it["property"]: it["value"] for it in described if it["property"] not in COUNTED},
        }
    return found


def attempts(connection, session):
    """Each attempt with its response."""
    for key in [*spellings(), *(form.format(key) for form in SPACED for key in KEYS)]:
        yield f"OpenSession with {key!r}", connection.try_open(**{key: "/tmp/x.jar"})
        yield f"confOverlay with {key!r}", connection.execute(session, "SELECT 1", {key: "/tmp/x.jar"})
    statements = [STATEMENTS[0].format(key) for key in spellings()]
    for statement in [*statements, *(form.format(key) for form in STATEMENTS for key in KEYS)]:
        yield repr(statement), connection.execute(session, statement)


def accepted(connection, received):
    """What a client has of an attempt, if it was not refused as it should be; what it opened is closed."""
    if opened := getattr(received, "sessionHandle", None):
        connection.close_session(opened)
    elif operation := getattr(received, "operationHandle", None):
        connection.call("CloseOperation", ttypes.TCloseOperationReq(operation))
    elif received.status.sqlState == "42501" and REFUSED.match(received.status.errorMessage):
        return None
    return received.status.sqlState, received.status.errorMessage


def test_c12_no_setting_of_a_client_reaches_a_launch(target):
    """By OpenSession, `confOverlay` and SET, each spelling over each transport: 42501, and no engine is launched otherwise."""
    before = launched(target)
    found = []
    for transport, connect in TRANSPORTS.items():
        with connect(target, "alice") as connection:
            session = connection.open()
            for attempt, received in attempts(connection, session):
                if wrong := accepted(connection, received):
                    found.append(f"{attempt} over {transport}: {wrong}")
            assert connection.rows(session, "SELECT current_user") == [("alice",)], transport
    assert launched(target) == before
    assert not found, "\n".join([f"{len(found)} were not refused", *found[:: len(found) // 40 + 1]])
