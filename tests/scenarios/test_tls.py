"""TLS on the port for clients: real clients verify the certificate of a standalone, and refuse one that they do not trust."""

import ssl

import pytest

from harness.certificates import STORE_PASSWORD, Certificate
from harness.clients import impyla_session, open_pyhive, pyhive_session, refused_login, rows
from harness.java import Jdbc, JdbcError, beeline, beeline_ok
from harness.processes import run
from harness.standalone import Standalone
from harness.tier import only_long

NAMESPACE = "hiveserver2"
NEEDS_TLS = "this login requires TLS: add ssl=true"


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
