"""Engines of type hiveserver2: real HiveServer2 servers from command templates, reached by real clients through a proxy."""

import psutil

from harness.clients import pyhive_session, refused_login, rows
from harness.hiveserver2 import server_of
from harness.processes import working_below
from harness.waiting import wait_until

WITHIN_S = 60
TYPE = ", ENGINE_TYPE 'hiveserver2'"
MARKS = {"ENGINEHOUSE_ENGINE_UID", "ENGINEHOUSE_ENGINE_DIR", "ENGINEHOUSE_SERVER_PASSWORD"}


def test_a_server_from_a_template_serves_real_clients(cluster, control, cluster_tenant):
    properties = "PROPERTIES ('datafusion.execution.batch_size'='17')"
    tenant, pool, unit, user = cluster_tenant("templated", options=f"{TYPE}, {properties}")
    name = control.start(tenant, pool, unit)
    with pyhive_session(cluster.addresses["proxy-b"], user) as session:
        (row,) = rows(session, "SELECT sum(x) AS total FROM (VALUES (1), (44)) AS t(x)")
        assert row == {"total": 45}
        assert rows(session, "SHOW datafusion.execution.batch_size")[0]["value"] == "17"
    described = control.described(pool, name)
    assert described["catalog"].startswith("own: "), described
    unit_rows = {it["property"]: it["value"] for it in control.execute(f"DESCRIBE RESOURCE UNIT {unit}")}
    assert unit_rows["charge per engine"] == "1 CPU, 768 MiB, 1 engine" and "executors" not in unit_rows, unit_rows
    created = control.execute(f"SHOW CREATE RESOURCE UNIT {unit}")
    assert "EXECUTOR" not in str(created) and "'hiveserver2'" in str(created), created

    engine = cluster.engines.one(name)
    server = server_of(engine, "datafusion_serv")
    # It has nothing of its agent's but what marks it as this engine's, the password of its agent, and the template's.
    environment = server.environ()
    assert {it for it in environment if it.startswith("ENGINEHOUSE")} == MARKS, environment
    assert (environment["PLACE"], environment["BRACES"]) == (f"{pool}/{unit}", "{1}"), environment
    assert server.cwd() == str(engine.folder.resolve() / "files/server")
    words = server.cmdline()
    assert words[words.index("--engine") + 1] == name and words[words.index("--memory-mib") + 1] == "512", words
    (listens,) = {it.laddr for it in server.net_connections("tcp") if it.status == psutil.CONN_LISTEN}
    assert listens.ip == "127.0.0.1" and f"127.0.0.1:{listens.port}" in words, (listens, words)
    assert refused_login(f"127.0.0.1:{listens.port}", user), "only the agent has the password"

    control.stop(pool, name)
    assert cluster.wait_ended(name) == "drained"
    wait_until(lambda: not server.is_running(), WITHIN_S, "the server has ended with its agent")


def test_an_engine_ends_with_its_server_and_bad_statements_are_refused(cluster, control, cluster_tenant):
    cluster.logs.allow("the engine failed reason=")
    tenant, pool, unit, _ = cluster_tenant("templated_ends", options=TYPE)
    name = control.start(tenant, pool, unit)
    engine = cluster.engines.one(name)
    server_of(engine, "datafusion_serv").kill()
    assert "the server ended with signal: 9" in cluster.wait_ended(name)
    wait_until(lambda: not working_below(engine.folder), WITHIN_S, "nothing of the engine is left")
    control.execute(f"ALTER RESOURCE UNIT {unit} MIN_ENGINES 0")
    refusal = control.refused(f"ALTER RESOURCE UNIT {unit} MAX_EXECUTORS 3")
    assert refusal.sqlstate == "22023" and "have no executors" in refusal.message, refusal


def test_without_a_template_the_type_is_refused(standalone, control):
    refusal = control.refused("CREATE RESOURCE UNIT without_template ENGINE_TYPE 'hiveserver2'")
    assert refusal.sqlstate == "55000" and "Hint: Set hiveserver2.command" in refusal.message, refusal
