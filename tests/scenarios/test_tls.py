"""TLS on the port for clients: real clients verify the certificate of a standalone, and refuse one that they do not trust;
certificates are replaced under results and statements of any length."""

import contextlib
import shutil
import signal
import ssl
import threading
import time

import pytest
from TCLIService.ttypes import TOperationState

from harness.certificates import STORE_PASSWORD, Certificate
from harness.clients import impyla_session, open_pyhive, pyhive_session, refused_login, rows
from harness.control import Control
from harness.java import Jdbc, JdbcError, beeline, beeline_ok
from harness.processes import run
from harness.standalone import Standalone
from harness.tier import only_long
from harness.waiting import wait_until

NAMESPACE = "hiveserver2"
NEEDS_TLS = "this login requires TLS: add ssl=true"
WITHIN_S = 60
RELOADS = 4
IDLE_SESSIONS = 8
STREAMED_ROWS = 300_000


class Served:
    """A standalone that requires TLS, with its certificate and one that is not its own."""

    def __init__(self, folder):
        self.trusted, self.other = Certificate(folder, "server"), Certificate(folder, "other")
        keys = {"MODE": "required", "CERTIFICATE_FILE": self.trusted.certificate, "KEY_FILE": self.trusted.key}
        env = {f"ENGINEHOUSE_TLS_{key}": str(value) for key, value in keys.items()}
        env |= {"ENGINEHOUSE_PROXY_DISCOVERY_NAMESPACE": NAMESPACE, "ENGINEHOUSE_PROXY_ADVERTISE": "localhost"}
        self.installation = Standalone(folder / "standalone", env=env)

    def start(self):
        self.installation.start()
        return self

    def close(self):
        self.installation.close()

    @property
    def address(self):
        return self.installation.address

    @property
    def localhost(self):
        """The address by the name that is in the certificate."""
        return self.address.replace("127.0.0.1", "localhost")


@pytest.fixture(scope="module")
def served(workspace):
    folder = workspace / "tls"
    folder.mkdir()
    it = Served(folder)
    try:
        yield it.start()
    finally:
        it.close()


def options(certificate, more=""):
    return f";ssl=true;sslTrustStore={certificate.java_store()};trustStorePassword={STORE_PASSWORD}{more}"


def assert_distrusted(connect):
    """The client fails because it does not trust the certificate. Thrift has the reason in `inner`."""
    with pytest.raises(Exception) as failure:
        connect()
    error = failure.value
    while error is not None and not isinstance(getattr(error, "inner", error), ssl.SSLCertVerificationError):
        error = error.__context__
    assert error is not None, f"another reason: {failure.value!r}"


def test_pyhive_verifies_the_certificate(served):
    assert served.installation.url_options == ";ssl=true"
    for address in (served.address, served.localhost):
        with pyhive_session(address, ca=served.trusted.certificate) as session:
            assert rows(session, "SHOW TENANTS") == []
    assert_distrusted(lambda: open_pyhive(served.address, ca=served.other.certificate))
    assert NEEDS_TLS in refused_login(served.address)


@only_long
def test_impyla_verifies_the_certificate(served):
    for http in (False, True):
        with impyla_session(served.localhost, ca=served.trusted.certificate, http=http) as cursor:
            cursor.execute("SHOW TENANTS")
            assert cursor.fetchall() == []
    assert_distrusted(impyla_session(served.localhost, ca=served.other.certificate).__enter__)


@only_long
@pytest.mark.parametrize("transport", ["", ";transportMode=http;httpPath=cliservice"], ids=["binary", "http"])
def test_jdbc_verifies_the_certificate(served, transport):
    with Jdbc(served.localhost, query=options(served.trusted, transport)) as jdbc:
        assert jdbc.rows("SHOW TENANTS") == []
    with pytest.raises(JdbcError, match="PKIX|certificate|SSL"):
        Jdbc(served.localhost, query=options(served.other, transport))


@only_long
def test_jdbc_without_tls_gets_the_reason(served):
    with pytest.raises(JdbcError, match=NEEDS_TLS):
        Jdbc(served.localhost)


@only_long
def test_beeline_verifies_the_certificate(served):
    done = beeline_ok(served.localhost, "SHOW TENANTS", query=options(served.trusted))
    assert done.lines()[0].split("\t")[0] == "tenant", done.out
    done = beeline(served.localhost, "SHOW TENANTS", query=options(served.other))
    assert done.status != 0 and "SSLHandshakeException: PKIX" in done.err, done.err


@only_long
def test_jdbc_learns_from_zookeeper_that_logins_need_tls(served):
    (port,) = served.installation.data.rglob("zookeeper-port")
    query = f";serviceDiscoveryMode=zooKeeper;zooKeeperNamespace={NAMESPACE}"
    trust = options(served.trusted).removeprefix(";ssl=true")
    with Jdbc(f"127.0.0.1:{port.read_text().strip()}", query=query + trust) as jdbc:
        assert jdbc.rows("SHOW TENANTS") == []


def test_the_sql_client_verifies_the_certificate(served):
    def sql(ca):
        return run(["sql", "--url", served.address, "--tls", "--ca", ca, "-e", "SHOW TENANTS"], within_s=30, cwd=ca.parent)

    done = sql(served.trusted.certificate)
    assert done.returncode == 0, done.stderr
    done = sql(served.other.certificate)
    assert done.returncode == 1 and "invalid peer certificate" in done.stderr, done.stderr


class Streaming(threading.Thread):
    """Reads one long result after the other, and notes when each began and ended."""

    def __init__(self, connection):
        super().__init__(daemon=True)
        self.cursor = connection.cursor()
        self.results, self.failures = [], []
        self.ended = threading.Event()

    def run(self):
        try:
            while not self.ended.is_set():
                began = time.monotonic()
                begin(self.cursor)
                read_to_the_end(self.cursor, 0)
                self.results.append((began, time.monotonic()))
        except Exception as error:
            self.failures.append(error)


def begin(cursor):
    cursor.arraysize = 1000
    cursor.execute(f"SELECT value FROM generate_series(1, {STREAMED_ROWS})")


def read_to_the_end(cursor, last):
    """All rows that follow, which must be there and in their order."""
    for (value,) in cursor:
        assert value == last + 1
        last = value
    assert last == STREAMED_ROWS


class Replaced:
    """The files of an installation's certificate, replaced one after the other by two others."""

    def __init__(self, served, folder):
        self.served = served
        self.others = [Certificate(folder, name) for name in ("first", "second")]
        # What clients trust that see all of them.
        self.all = folder / "all.crt"
        self.all.write_bytes(b"".join(it.certificate.read_bytes() for it in (served.trusted, *self.others)))
        self.number = 0
        self.presented_at = []

    def replace(self):
        new, files = self.others[self.number % 2], self.served.trusted
        self.number += 1
        for source, target in ((new.certificate, files.certificate), (new.key, files.key)):
            shutil.copy(source, target.with_suffix(".new"))
            target.with_suffix(".new").rename(target)
        self.served.installation.program.send(signal.SIGHUP)
        wait_until(lambda: self.is_presented(new), WITHIN_S, "the new certificate is presented")
        self.presented_at.append(time.monotonic())

    def is_presented(self, certificate):
        try:
            open_pyhive(self.served.address, ca=certificate.certificate).close()
        except Exception:
            return False
        return True


def start_running(connection, replaced):
    """A statement that runs before a reload and after it: as long as that takes on this machine."""
    cursor, numbers = connection.cursor(), 10**7
    while True:
        cursor.execute(f"SELECT count(*) AS n FROM generate_series(1, {numbers})", async_=True)
        replaced.replace()
        if cursor.poll().operationState != TOperationState.FINISHED_STATE:
            return cursor, numbers
        numbers *= 4


def test_reloads_fail_no_streaming_result_no_running_statement_and_no_idle_session(folder):
    served = Served(folder)
    with contextlib.closing(served), contextlib.ExitStack() as stack:
        served.start()
        replaced = Replaced(served, folder)
        trust = {"ca": replaced.all}
        control = Control(served.address, **trust)
        control.start(*control.make("t", users="'ann'"))

        def session():
            return stack.enter_context(pyhive_session(served.address, "ann", **trust))

        idle = [session() for _ in range(IDLE_SESSIONS)]
        for it in idle[: IDLE_SESSIONS // 2]:
            assert rows(it, "SELECT 1 AS one") == [{"one": 1}]
        # This one has read some rows before the reloads and reads the others after them.
        paused = session().cursor()
        begin(paused)
        assert [value for (value,) in paused.fetchmany(10)] == list(range(1, 11))
        streaming = Streaming(session())
        streaming.start()
        for _ in range(RELOADS):
            done = len(streaming.results)
            replaced.replace()
            wait_until(lambda done=done: len(streaming.results) > done or streaming.failures, WITHIN_S, "the stream continues")
        running, numbers = start_running(session(), replaced)
        streaming.ended.set()
        streaming.join(WITHIN_S)
        assert not streaming.is_alive() and streaming.failures == []
        wait_until(lambda: running.poll().operationState == TOperationState.FINISHED_STATE, WITHIN_S * 3, "it has run")
        assert running.fetchall() == [(numbers,)]
        read_to_the_end(paused, 10)
        for it in idle:
            assert rows(it, "SELECT 2 AS two") == [{"two": 2}]
        over = sum(any(began < at < ended for at in replaced.presented_at) for began, ended in streaming.results)
        assert over > 0
        print(f"{len(replaced.presented_at)} reloads, {over} of {len(streaming.results)} results streamed over one, 0 failed")
