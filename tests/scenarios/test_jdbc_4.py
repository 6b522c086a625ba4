"""Hive JDBC 4 through each transport, with passwords of the users file."""

import pytest

from harness.certificates import STORE_PASSWORD, Certificate
from harness.clients import open_pyhive
from harness.java import Jdbc, JdbcError
from harness.processes import run
from harness.standalone import Standalone
from harness.tier import only_long
from harness.waiting import wait_until

DRIVER = "4.1"
HTTP = ";transportMode=http;httpPath=cliservice"
PASSWORD = "of the test"
# A users file is read again every 5 s.
READ_AGAIN_WITHIN_S = 30


class Served:
    """A standalone with TLS and a users file, which has admin and ann."""

    def __init__(self, folder):
        self.folder = folder
        self.trusted, self.other = Certificate(folder, "server"), Certificate(folder, "other")
        for user in ("admin", "ann"):
            self.passwd(user)
        env = {"TLS_MODE": "required", "TLS_CERTIFICATE_FILE": self.trusted.certificate, "TLS_KEY_FILE": self.trusted.key}
        env |= {"ACCESS_AUTHENTICATION": "file", "ACCESS_USERS_FILE": folder / "users"}
        self.installation = Standalone(
            folder / "standalone", env={f"ENGINEHOUSE_{key}": str(value) for key, value in env.items()}
        )

    def passwd(self, *arguments):
        done = run(["passwd", "--file", self.folder / "users", *arguments], text=f"{PASSWORD}\n")
        assert done.returncode == 0, done.stderr

    @property
    def localhost(self):
        """The address by the name that is in the certificate."""
        return self.installation.address.replace("127.0.0.1", "localhost")

    def jdbc(self, user="admin", more="", password=PASSWORD, trust=None):
        store = (trust or self.trusted).java_store()
        query = f";ssl=true;sslTrustStore={store};trustStorePassword={STORE_PASSWORD}{more}"
        return Jdbc(self.localhost, user, query, password, DRIVER)


@pytest.fixture(scope="module")
def served(workspace):
    folder = workspace / "jdbc-4"
    folder.mkdir()
    it = Served(folder)
    try:
        it.installation.start()
        yield it
    finally:
        it.installation.close()


@only_long
@pytest.mark.parametrize("transport", ["", HTTP], ids=["binary", "http"])
def test_jdbc_4_verifies_the_certificate(served, transport):
    with served.jdbc(more=transport) as jdbc:
        assert jdbc.rows("SHOW TENANTS") == []
    with pytest.raises(JdbcError, match="PKIX|certificate|SSL"):
        served.jdbc(more=transport, trust=served.other)


@only_long
def test_jdbc_4_keeps_the_cookie_of_its_login_over_http(served):
    with served.jdbc("ann", HTTP) as jdbc:
        assert jdbc.rows("SHOW TENANTS") == []
        served.passwd("--delete", "ann")

        def is_refused():
            try:
                open_pyhive(served.installation.address, "ann", password=PASSWORD, ca=served.trusted.certificate).close()
            except Exception:
                return True
            return False

        wait_until(is_refused, READ_AGAIN_WITHIN_S, "ann cannot log in any more", 1)
        # The call gets in: with her password it would be a 401, too. Its statement is refused.
        with pytest.raises(JdbcError, match="28000.*was removed"):
            jdbc.rows("SHOW TENANTS")
    with pytest.raises(JdbcError, match="401"):
        served.jdbc("ann", HTTP)


@only_long
@pytest.mark.parametrize("transport", ["", ";auth=noSasl", HTTP], ids=["sasl", "plain", "http"])
def test_jdbc_4_runs_statements_without_tls(standalone, tenant, transport):
    with Jdbc(standalone.address, "alice", transport, driver=DRIVER) as jdbc:
        assert jdbc.rows("SELECT 40 + 2 AS answer") == [{"answer": "42"}]
