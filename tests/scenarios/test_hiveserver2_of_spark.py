"""Spark's server from its own command line as the server of engines of type hiveserver2."""

import pytest

from harness import hiveserver2, spark
from harness.clients import pyhive_session, refused, rows
from harness.cluster import Cluster
from harness.fixtures import started
from harness.hiveserver2 import server_of
from harness.java import beeline_ok
from harness.tier import only_long
from harness.waiting import wait_until

WITHIN_S = 60
OPTIONS = ", ENGINE_TYPE 'hiveserver2', PROPERTIES ('spark.sql.shuffle.partitions'='3')"


@pytest.fixture(scope="module")
def shared_cluster(workspace):
    yield from started(Cluster(workspace / "hiveserver2-of-spark", hiveserver2=hiveserver2.sparks_server()))


@only_long
def test_spark_from_its_own_command_line_serves_real_clients(cluster, control, cluster_tenant):
    tenant, pool, unit, user = cluster_tenant("sparks", options=OPTIONS)
    control.execute(f"ALTER RESOURCE UNIT {unit} DRIVER_MEMORY '1G'")
    name = control.start(tenant, pool, unit, wait="5m")
    with pyhive_session(cluster.addresses["proxy-b"], user) as session:
        (row,) = rows(session, "SELECT version() AS version, current_user() AS me")
        assert row["version"].startswith(f"{spark.version()} ") and row["me"] == user, row
        assert rows(session, "SET spark.sql.shuffle.partitions")[0]["value"] == "3"
        assert rows(session, "SET spark.app.name")[0]["value"] == name
        assert "UNRESOLVED_ROUTINE" in refused(session, "SELECT cont(*) FROM range(1)").message
    done = beeline_ok(cluster.addresses["proxy-a"], "SELECT sum(id) AS total FROM range(10)", user=user)
    assert "45" in done.lines(), done.out
    java = server_of(cluster.engines.one(name), "java")
    control.stop(pool, name)
    wait_until(lambda: not java.is_running(), WITHIN_S, "Spark has ended with its agent")
