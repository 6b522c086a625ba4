"""Secret properties in the database of a running installation: sealed, and of no use in another row."""

import json

from harness.clients import pyhive_session, rows
from harness.control import Control
from harness.waiting import wait_until

KEY = "my.password"
WITHIN_S = 60


def stored(database, unit):
    [[spec]] = database.rows(f"SELECT spec FROM resource_unit WHERE name = '{unit}'")
    return json.loads(spec)


def put(database, unit, spec):
    database.rows(f"UPDATE resource_unit SET spec = '{json.dumps(spec)}' WHERE name = '{unit}'")


def answers(cluster, tenant):
    with pyhive_session(cluster.addresses["proxy-a"], "ann", tenant=tenant) as session:
        return rows(session, "SELECT 1 AS n") == [{"n": 1}]


def test_a_secret_that_was_moved_stops_new_engines_of_its_unit_only(own_cluster):
    cluster = own_cluster()
    control = Control(cluster.addresses["proxy-b"])
    options = ", START_ON_DEMAND FALSE, PROPERTIES ('{}'='{}', 'a'='b')"
    one = control.make("t_1", users="'ann'", options=options.format(KEY, "hunter2-one"))
    two = control.make("t_2", users="'ann'", options=options.format(KEY, "hunter2-two"))
    first, second = control.start(*one), control.start(*two)
    units = {unit: stored(cluster.database, unit) for unit in ("t_1_u", "t_2_u")}
    assert all(it["properties"][KEY].startswith("sealed:1:1:") for it in units.values()), units
    assert "hunter2" not in str(
        [cluster.database.rows(f"SELECT * FROM {it}") for it in ("resource_unit", "alteration", "audit")]
    )

    moved = units["t_2_u"] | {"properties": units["t_2_u"]["properties"] | {KEY: units["t_1_u"]["properties"][KEY]}}
    put(cluster.database, "t_2_u", moved)
    warning = "secret properties cannot be opened; no engines are created for their units"
    cluster.logs.allow(warning, "decision failed", "could not be created")
    cluster.restart("agent-1")
    named = f'property "{KEY}" of resource unit "t_2_u"'
    wait_until(lambda: warning in cluster.programs["agent-1"].logged(), WITHIN_S, "an agent that starts names the unit")
    assert "t_2_u: " in cluster.programs["agent-1"].logged().replace('"', "").replace("\\", "")

    # Engines that run stay, those of other units are created, and the unit of the value has no new one.
    third = control.start(*one)
    [pending] = control.execute("START ENGINE t_2 t_2_p t_2_u")
    control.wait_engine("t_2", pending["engine"], reason=rf"could not be created, failure \d+: {named} cannot be opened")
    assert answers(cluster, "t_1") and answers(cluster, "t_2")
    assert {first, third} <= {it["engine"] for it in control.engines("t_1") if it["state"] == "ready"}
    assert control.engine("t_2", second)["state"] == "ready"
    assert control.execute("SHOW CREATE RESOURCE UNIT t_2_u") and "sealed" not in str(control.execute("SHOW RESOURCE UNITS"))

    control.execute(f"ALTER RESOURCE UNIT t_2_u PROPERTIES ('{KEY}'='hunter2-again') WAIT '2m'")
    assert all(it["state"] == "ready" for it in control.engines("t_2") if it["current"])
    launched = list(cluster.state_dir.glob("engines/*/files/engine.toml"))
    assert any("hunter2-again" in it.read_text() for it in launched)
    assert not any("sealed:" in it.read_text() for it in launched)
    assert "hunter2" not in str(cluster.database.rows("SELECT * FROM resource_unit"))
