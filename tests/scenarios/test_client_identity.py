"""Who a client is, and what it can't reach: plain Thrift, impersonation, other people's handles."""

import pytest
from impala import dbapi as impyla
from impala.error import Error
from pyhive import hive
from TCLIService import ttypes

from harness.clients import close_impyla, open_pyhive, pyhive_session, refused, split
from harness.java import Jdbc, JdbcError


def test_plain_thrift_is_spoken_on_the_same_port(standalone, tenant):
    host, port = split(standalone.address)
    connection = hive.connect(host=host, port=port, username="alice", auth="NOSASL")
    cursor = connection.cursor()
    cursor.execute("SELECT 42")
    assert cursor.fetchall() == [(42,)]
    connection.close()
    connection = impyla.connect(host=host, port=port, auth_mechanism="NOSASL", timeout=60)
    cursor = connection.cursor(user="alice")
    try:
        cursor.execute("SELECT 42")
        assert cursor.fetchall() == [(42,)]
    finally:
        close_impyla(connection, cursor)
    with Jdbc(standalone.address, "alice", ";auth=noSasl;user=alice") as jdbc:
        assert jdbc.rows("SELECT 42 AS answer") == [{"answer": "42"}]


@pytest.mark.parametrize("spelling", ["hive.server2.proxy.user", "Hive.Server2.Proxy.User"])
def test_no_session_key_changes_the_user(standalone, tenant, spelling):
    with pytest.raises(hive.OperationalError, match="not allowed to impersonate"):
        open_pyhive(standalone.address, "alice", **{spelling: "admin"})
    for query in (";hive.server2.proxy.user=admin", f"?{spelling}=admin"):
        with pytest.raises(JdbcError, match="not allowed to impersonate"):
            Jdbc(standalone.address, "alice", query)
    # The driver itself omits what follows a semicolon and is not spelled as it knows it.
    if spelling != spelling.lower():
        with Jdbc(standalone.address, "alice", f";{spelling}=admin") as jdbc:
            assert jdbc.refused("SHOW MASTER").sqlstate == "42501"
    with pyhive_session(standalone.address, "alice", **{spelling: "alice"}) as session:
        assert refused(session, "SHOW MASTER").sqlstate == "42501"


def test_a_handle_opens_nothing_on_another_connection(standalone, tenant):
    owner = open_pyhive(standalone.address, "alice")
    for thief in ("bob", "alice"):
        other = open_pyhive(standalone.address, thief)
        request = ttypes.TExecuteStatementReq(sessionHandle=owner._sessionHandle, statement="SELECT 1")
        answer = other._client.ExecuteStatement(request)
        assert answer.status.statusCode == ttypes.TStatusCode.ERROR_STATUS, thief
        assert "does not exist" in answer.status.errorMessage, answer
        answer = other._client.CloseSession(ttypes.TCloseSessionReq(sessionHandle=owner._sessionHandle))
        assert answer.status.statusCode == ttypes.TStatusCode.ERROR_STATUS, thief
        other.close()
    cursor = owner.cursor()
    cursor.execute("SELECT 42")
    assert cursor.fetchall() == [(42,)]
    owner.close()


def test_settings_that_choose_code_or_files_never_reach_a_launch(standalone, tenant):
    for key in ("spark.jars", "set:hiveconf:spark.plugins", "set:env:PATH"):
        with pytest.raises(Exception, match="42501|chooses code|environment"):
            open_pyhive(standalone.address, "alice", **{key: "x"}).close()
    host, port = split(standalone.address)
    connection = impyla.connect(host=host, port=port, auth_mechanism="PLAIN", user="alice", password="x")
    with pytest.raises(Error):
        connection.cursor(configuration={"spark.driver.extraJavaOptions": "x"})
    connection.close()
