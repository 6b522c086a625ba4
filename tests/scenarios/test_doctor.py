"""`enginehouse doctor` on separate processes: its report of a healthy installation, and of each possible defect.

One cluster serves the whole file. A defect is made at once, while the master is stopped or cannot heal it, and removed by the
remedy that the doctor names.
"""

import json
import re
import shutil
import time
import uuid

import pytest
from kazoo.security import ACL, Id, make_acl

from harness import golden
from harness.clients import pyhive_session, rows
from harness.cluster import SESSION_TIMEOUT_S
from harness.doctor import HEAL_WITHIN_S, NO_SPARE, Patient, as_if_it_waited_for_the_disk, check, finding, ill
from harness.ports import free_port
from harness.processes import run
from harness.tcp_relay import TcpRelay
from harness.waiting import wait_until

# How long what may be in motion is looked at again: a session's timeout and three ticks.
LOOKS_AGAIN_S = SESSION_TIMEOUT_S + 3 * 2

UNREADY = 'node "n-1" has not been ready for 12 s; waits for replacement: is being created'
SUSPENDED = "3 of 5 nodes with engines are not ready: no engine is replaced because of its node"
IDLER = "idler"
# Longer than the doctor looks.
DEMAND_LEASE_S = 60
AT_MAXIMUM = "all engines are full, and MAX_ENGINES is 1"


@pytest.fixture(scope="module")
def patient(workspace):
    made = Patient(workspace / "patient")
    yield made
    made.cluster.close()


def test_a_healthy_installation_is_reported_and_left_unchanged(patient, golden_file):
    patient.cluster.logs.begin()
    nodes = {name: patient.cluster.nodes.children(name) for name in ("", "lock", "agents", "engines", "drains")}
    began = time.monotonic()
    done = patient.text()
    # That no other candidate for master waits is a warning that no tick settles: it is not looked at again.
    assert time.monotonic() - began < LOOKS_AGAIN_S
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"warning: {NO_SPARE}: no other candidate waits: if this master ends" in done.stdout, done.stdout
    cluster, folder = patient.cluster, str(patient.cluster.folder)
    shown = golden.masked(
        done.stdout.replace(folder, "<folder>")
        .replace(cluster.root, "<root>")
        .replace(cluster.discovery, "<discovery>")
        .replace(cluster.database.name, "<database>")
    )
    shown = re.sub(r"proxy@[^ ]+:\d+", "proxy@<host>:<pid>", shown)
    shown = re.sub(r"\bepoch \d+", "epoch <n>", shown)
    shown = re.sub(r"\b(\d+) in the database, \1 the highest", "<n> in the database, <n> the highest", shown)
    shown = re.sub(r"\d+\.\d (GiB|MiB)", "<size>", shown)
    shown = re.sub(r"\d+(\.\d)? (ms|s)\b( (behind|ahead of))?", "<age>", shown)
    assert as_if_it_waited_for_the_disk(shown) == golden_file(name="doctor_healthy")
    after = {name: patient.cluster.nodes.children(name) for name in nodes}
    assert after == nodes
    patient.cluster.logs.check()


def test_a_database_that_may_forget_what_it_acknowledged_is_a_warning(patient):
    status, report = patient.look()
    found = check(report, "durability")
    subjects = {it["subject"] for it in found["findings"]}
    for setting in ("fsync", "full_page_writes"):
        ((value,),) = patient.cluster.database.rows(f"SHOW {setting}")
        assert f"{setting} {value}" in found["said"] and (setting in subjects) == (value == "off"), found
    assert "synchronous_commit on" in found["said"], "each connection sets it"
    assert status == 0 and found["verdict"] == ("warning" if subjects else "ok"), report["summary"]


def test_without_database_settings_an_agent_is_queried_and_gaps_reported(patient):
    status, report = patient.look(patient.variant("no-database", database=None))
    assert (status, report["problems"], report["not_looked_at"]) == (0, 0, 6), report["summary"]
    assert "no section [database]" in check(report, "reachable")["said"]
    assert "metadata agent 127.0.0.1:" in check(report, "last tick")["said"]
    assert check(report, "desired engines")["said"] == "1 of 1 desired engines exist"
    status, report = patient.look(patient.variant("no-place", orchestrator=None))
    assert status == 0 and check(report, "orphans")["verdict"] == "not_looked_at", report["summary"]
    assert "no section [orchestrator]" in check(report, "state directory")["said"]


def test_servers_that_are_away_are_named(patient):
    unused = f"127.0.0.1:{free_port()}"
    status, report = patient.look(patient.variant("no-zookeeper", zookeeper={"connect": unused}))
    assert status == 1 and ill(report) == {"servers"}, report["summary"]
    assert "grants no session" in finding(report, "servers", unused)["what"]
    assert check(report, "root")["verdict"] == "not_looked_at"
    both = f"{patient.cluster.connect},{unused}"
    status, report = patient.look(patient.variant("one-of-two", zookeeper={"connect": both}))
    assert status == 1 and ill(report) == {"servers"}, report["summary"]
    away = patient.variant("no-server", database={"url": f"postgres://eh:hidden@{unused}/eh"})
    status, report = patient.look(away)
    assert status == 1 and ill(report) == {"reachable"}, report["summary"]
    assert "hidden" not in json.dumps(report) and unused in finding(report, "reachable", "postgres://")["subject"]


def test_a_database_of_another_version_is_named_with_what_to_run(patient):
    ((version,),) = patient.cluster.database.rows("SELECT version FROM schema_version")
    try:
        patient.cluster.database.rows("UPDATE schema_version SET version = 1")
        status, report = patient.look()
        behind = finding(report, "migrations", "schema version 1")
        assert status == 1 and "is behind this program" in behind["what"]
        assert behind["mend"] == f"enginehouse migrate --config {patient.file}"
        done = run(behind["mend"].split()[1:], cwd=patient.cluster.folder)
        assert done.returncode == 0, done.stderr
        assert patient.look()[0] == 0
        patient.cluster.database.rows("UPDATE schema_version SET version = 99")
        status, report = patient.look()
        assert status == 1 and "is newer than this program" in finding(report, "migrations", "99")["what"]
    finally:
        patient.cluster.database.rows(f"UPDATE schema_version SET version = {version}")
    assert patient.look()[0] == 0


def test_timeouts_that_a_proxy_reverts_are_named(patient):
    def taken_back(data):
        return data.replace(b"SET lock_timeout = 5000", b"SET lock_timeout = 0000")

    with TcpRelay(patient.server(), change=taken_back) as relay:
        status, report = patient.look(patient.through(relay))
    assert status == 1 and ill(report) == {"timeouts"}, report["summary"]
    found = finding(report, "timeouts", "lock_timeout")
    assert "has no limit although 5s was set" in found["what"] and "let SET through" in found["mend"], found


def test_a_slow_way_to_the_database_is_a_warning(patient):
    with TcpRelay(patient.server(), delay_s=0.15) as relay:
        status, report = patient.look(patient.through(relay))
    assert status == 0 and ill(report) == {"round trips"}, report["summary"]
    assert "is above 100 ms" in finding(report, "round trips", "round trips")["what"]


def test_a_database_whose_clock_is_behind_is_a_warning(patient):
    database = patient.cluster.database
    role = f"behind_{database.name}"
    for statement in (
        "CREATE SCHEMA behind",
        "CREATE FUNCTION behind.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS "
        "'SELECT pg_catalog.clock_timestamp() - make_interval(0, 0, 0, 0, 1)'",
        f"CREATE ROLE {role} SUPERUSER LOGIN",
        f"ALTER ROLE {role} IN DATABASE {database.name} SET search_path = public, behind, pg_catalog",
    ):
        database.rows(statement)
    try:
        url = database.url.replace("postgres@", f"{role}@")
        status, report = patient.look(patient.variant("behind", database={"url": url}))
    finally:
        database.rows(f"DROP ROLE {role}")
    assert status == 0 and ill(report) == {"clock"}, report["summary"]
    found = finding(report, "clock", "clock")
    assert re.search(r"1 h behind this machine's|59 min \d+ s behind this machine's", found["what"]), found


def test_a_changed_access_list_is_named_with_a_working_remedy(patient):
    nodes = patient.cluster.nodes
    path = nodes.path("drains")
    wanted, _ = nodes.client.get_acls(path)
    kept = [it for it in wanted if "master" in it.id.id]
    nodes.client.set_acls(path, [*kept, make_acl("world", "anyone", read=True, delete=True)])
    status, report = patient.look()
    found = finding(report, "access lists", path)
    assert status == 1 and ill(report) == {"access lists"}, report["summary"]
    for part in ("any client may delete below it, read it", "proxy may read it", "agent may read it"):
        assert part in found["what"], found
    (rights,) = re.findall(rf"setAcl {path} (\S+)", found["mend"])
    nodes.client.set_acls(path, [acl_of(word) for word in rights.split(",")])
    assert sorted(nodes.client.get_acls(path)[0]) == sorted(wanted)
    assert patient.look()[0] == 0


def acl_of(word):
    scheme, rest = word.split(":", 1)
    name, letters = rest.rsplit(":", 1)
    rights = sum({"r": 1, "w": 2, "c": 4, "d": 8, "a": 16}[letter] for letter in letters)
    return ACL(rights, Id(scheme, name))


def test_a_hanging_metadata_agent_and_missing_ones_are_named(patient):
    cluster = patient.cluster
    address = cluster.programs["agent-2"].printed().split("ready: ")[1].split()[0]
    cluster.programs["agent-2"].pause()
    try:
        status, report = patient.look()
        found = finding(report, "answers", address)
        assert status == 1 and "is registered and does not respond" in found["what"], found
    finally:
        cluster.programs["agent-2"].resume()
    wait_until(
        lambda: check(patient.look()[1], "registered")["said"].startswith("2: "), HEAL_WITHIN_S, "both are registered", 0.2
    )
    try:
        cluster.programs["agent-1"].stop()
        status, report = patient.look()
        spare = finding(report, "registered", "metadata agents")
        assert (status, spare["severity"]) == (0, "warning") and "there is one metadata agent" in spare["what"], spare
        cluster.programs["agent-2"].stop()
        status, report = patient.look()
        assert status == 1, report["summary"]
        assert "no metadata agent is registered" in finding(report, "registered", "metadata agents")["what"]
        assert check(report, "desired engines")["verdict"] == "ok"
    finally:
        for name in ("agent-1", "agent-2"):
            cluster.start_program(name)
    patient.wait_well()


@pytest.fixture(scope="module")
def sick(patient):
    """While the master is stopped, everything that only a master would set right is broken; the doctor looks once."""
    cluster, nodes = patient.cluster, patient.cluster.nodes
    patient.control.make(IDLER, options=", START_ON_DEMAND TRUE, IDLE_TIMEOUT '1h'")
    with pyhive_session(patient.control.address, tenant=IDLER) as session:
        rows(session, "SELECT 1")
    (idler,) = patient.control.wait_ready(IDLER)
    cluster.programs["proxy-a"].pause()
    lock = nodes.master_lock("a stranger")
    try:
        assert lock.acquire(timeout=30)
        engine = cluster.engines.one(patient.engine)
        orphan = "patient-orphan-0-1-abcdef"
        copy = cluster.state_dir / "engines" / orphan
        shutil.copytree(engine.folder, copy)
        record = json.loads((copy / "engine.json").read_text())
        record |= {"name": orphan, "uid": str(uuid.uuid4()), "labels": record["labels"] | {"name": orphan}}
        (copy / "engine.json").write_text(json.dumps(record))
        engine.kill()
        permit = {"version": 1, "tenant": patient.tenant, "pool": patient.pool, "unit": patient.unit, "uid": "unknown"}
        nodes.client.create(nodes.path("engines/patient-unknown"), json.dumps(permit).encode())
        fact = {"version": 1, "uid": "unknown", "grace_ms": 1, "reason": "a scenario"}
        nodes.client.create(nodes.path("drains/patient-drained"), json.dumps(fact).encode())
        alter = {"version": 1, "id": "a-scenario", "by": "stranger", "agent": "gone", "requested_at_ms": 1}
        alter |= {"object": {"kind": "tenant", "name": patient.tenant}, "base_generation": 1, "old": None}
        alter |= {"statement": "ALTER TENANT patient COMMENT 'x'"}
        nodes.client.create(nodes.path("lock/alter"), json.dumps(alter).encode())
        child = {"version": 1, "agent": "gone", "session": 1}
        nodes.client.create(nodes.path("lock/alter/a-scenario"), json.dumps(child).encode())
        # What a master reports of machines that failed. The next one writes its own.
        cluster.database.rows(
            f"UPDATE observed_engine SET registered = 0, reason = '{UNREADY}' WHERE name = '{patient.engine}'"
        )
        cluster.database.rows(f"UPDATE master SET waits_for = '{SUSPENDED}'")
        minutes_ago = [int((time.time() - 60 * minutes) * 1000) for minutes in (6, 70)]
        cluster.database.rows(f"UPDATE observed_engine SET idle_since_ms = {minutes_ago[1]} WHERE name = '{idler['engine']}'")
        cluster.database.rows(f"UPDATE slot SET failures = 3 WHERE tenant = '{patient.tenant}'")
        waits_unmet(cluster.database, patient.tenant, minutes_ago[0])
        status, report = patient.look()
    finally:
        # Otherwise the back-off of its slot would delay the next engine.
        cluster.database.rows(f"UPDATE slot SET failures = 0 WHERE tenant = '{patient.tenant}'")
        if lock.is_acquired:
            lock.release()
        cluster.programs["proxy-a"].resume()
    return status, report, orphan


def waits_unmet(database, tenant, since_ms):
    """One session waits, and no engine is started for it, as a proxy and a master record that."""
    until_ms = int((time.time() + DEMAND_LEASE_S) * 1000)
    columns = "proxy, digest, tenant, pool, unit, engine_type, creator, usr, grp, session, waiting, since_ms, until_ms, seq"
    values = f"'a-scenario', 'a', '{tenant}', '', '', '', 'IDE', '', '', '', 1, {since_ms}, {until_ms}, 1"
    database.rows(f"INSERT INTO demand ({columns}) VALUES ({values})")
    unmet = {"key": {"tenant": tenant, "creator": "IDE"}, "sessions": 1, "reason": AT_MAXIMUM, "position": None}
    database.rows(f"UPDATE observed_demand SET unmet = '{json.dumps([unmet])}'")


def test_a_master_that_does_not_tick_is_named(sick):
    status, report, _ = sick
    assert status == 1
    found = finding(report, "last tick", "master")
    assert "longer than three tick intervals" in found["what"] and "master.candidate = true" in found["mend"]


def test_a_stranger_who_holds_the_masters_lock_is_named(sick):
    found = finding(sick[1], "lock", "lock/master")
    assert "a stranger (session 0x" in found["what"] and "is not the master" in found["what"]
    assert "the database has epoch" in found["what"] and "delete " in found["mend"]


def test_an_engine_on_a_failed_machine_is_named_with_the_node(patient, sick):
    _, report, _ = sick
    found = finding(report, "unreachable", patient.engine)
    assert found["severity"] == "warning" and "kubectl delete node n-1" in found["mend"], found
    assert 'EH2603: it is not registered, and node "n-1" has not been ready for 12 s; its slot' in found["what"], found
    suspended = finding(report, "unreachable", "failed nodes")
    assert (suspended["severity"], suspended["what"]) == ("problem", f"EH2603: {SUSPENDED}")
    assert "control plane" in suspended["mend"], suspended


def test_sessions_that_no_engine_is_started_for_are_named_with_the_reason(patient, sick):
    found = finding(sick[1], "demand", f'tenant "{patient.tenant}", creator "IDE"')
    assert found["severity"] == "warning" and "SHOW DEMAND TENANT patient" in found["mend"], found
    assert found["what"].startswith("EH2601: sessions have waited for 6 min "), found
    assert found["what"].endswith(f"no engine is started for 1 of 1: {AT_MAXIMUM}"), found


def test_an_idle_engine_that_is_not_released_is_named(sick):
    (found,) = check(sick[1], "idle")["findings"]
    assert IDLER in found["subject"] and f"STOP ENGINE {IDLER}_p '{found['subject']}'" in found["mend"], found
    assert found["what"].startswith("EH2604: it has been idle for 1 h 10 min "), found
    assert found["what"].endswith("is not released; IDLE_TIMEOUT is 1h"), found


def test_a_killed_engine_is_named_by_its_slot_with_how_it_ended(patient, sick):
    found = finding(sick[1], "readiness", f"{patient.tenant}/{patient.pool}/{patient.unit}/0")
    assert f"engine {patient.engine} ended" in found["what"] and "DESCRIBE ENGINE" in found["mend"]
    assert found["what"].startswith("EH2602: 3 engines of this slot failed in a row; "), found
    assert "it is ended" in finding(sick[1], "observations", patient.engine)["what"]


def test_an_entry_that_was_never_issued_is_an_orphan(sick):
    _, report, orphan = sick
    found = finding(report, "orphans", orphan)
    assert "its name was never issued" in found["what"] and f"/{orphan}" in found["mend"]


def test_a_permit_without_an_engine_is_named(sick):
    found = finding(sick[1], "permits", "/engines/patient-unknown")
    assert "no engine of that name exists, and no slot desires one" in found["what"]


def test_a_drain_fact_without_an_engine_is_named(sick):
    found = finding(sick[1], "drain orders", "/drains/patient-drained")
    assert "no engine of that name exists" in found["what"] and "a scenario" in found["what"]


def test_a_stale_alter_node_is_named_with_its_age_and_object(sick):
    found = finding(sick[1], "alter node", "/lock/alter")
    for part in ("it has existed for ", "ALTER TENANT patient", 'by "stranger"', "a-scenario is in doubt", "0x1"):
        assert part in found["what"], (part, found)
    assert check(sick[1], "converging")["verdict"] == "ok"


def test_findings_for_the_master_heal_when_one_acts(patient, sick):
    _, _, orphan = sick
    patient.wait_well()
    nodes = patient.cluster.nodes
    assert not nodes.exists("lock/alter") and not nodes.exists("engines/patient-unknown")
    assert not nodes.exists("drains/patient-drained")
    assert not (patient.cluster.state_dir / "engines" / orphan).exists()
    (engine,) = patient.control.wait_ready(patient.tenant)
    assert engine["engine"] != patient.engine
    patient.control.drop(IDLER, f"{IDLER}_p", f"{IDLER}_u")
    patient.cluster.settled(patient.control)


def test_an_alteration_without_its_node_is_well_and_converges(patient):
    cluster = patient.cluster
    cluster.programs["proxy-a"].pause()
    try:
        (answer,) = patient.control.execute(f"ALTER TENANT {patient.tenant} COMMENT 'without its node'")
        cluster.nodes.client.delete(cluster.nodes.path("lock/alter"), recursive=True)
        _, report = patient.look()
    finally:
        cluster.programs["proxy-a"].resume()
    assert check(report, "converging")["verdict"] == "ok"
    assert check(report, "alter node")["verdict"] == "ok"
    stopped = finding(report, "proxies", cluster.addresses["proxy-a"])
    assert "has not replied within 5 s: its process is stopped or hangs" in stopped["what"], stopped
    patient.wait_well()
    assert patient.progress(answer["alteration"]) == "converged"


def test_an_engine_whose_older_one_drains_in_place_is_well(patient):
    (engine,) = patient.control.wait_ready(patient.tenant)
    old = engine["engine"]
    with pyhive_session(patient.control.address, tenant=patient.tenant) as pinned:
        # Its catalog ends with it, so the drain waits for the session.
        rows(pinned, "CREATE VIEW held AS SELECT 1 AS one")
        (answer,) = patient.control.execute(f"RESTART ENGINE {patient.pool} '{old}' IN PLACE WITHIN '2m'")
        patient.control.wait_engine(patient.tenant, old, "draining")
        status, report = patient.look()
        assert (status, check(report, "desired engines")["verdict"]) == (0, "ok"), report
        reason = patient.control.engine(patient.tenant, answer["engine"])["reason"]
        assert reason == f"waits until engine {old}, which it replaces in place, is gone"
    patient.control.wait_another(patient.tenant, old)


def test_a_database_restored_to_an_older_state_has_a_working_remedy(patient):
    """Masters come and go, the state directory knows the last; then the database is restored from before them."""
    database, lock = patient.cluster.database, patient.cluster.state_dir / "lock"
    patient.stop_proxies()
    ((older,),) = database.rows("SELECT epoch FROM master")
    database.rows("UPDATE master SET epoch = epoch + 5")
    patient.start_proxies()
    patient.restart_engine()
    seen = int(lock.read_text())
    assert seen == int(older) + 6, (older, seen)
    patient.stop_proxies()
    database.rows(f"UPDATE master SET epoch = {older}")
    database.rows(f"UPDATE observed_engine SET epoch = {older}")
    patient.start_proxies()
    status, report = patient.look()
    found = finding(report, "epochs", str(patient.cluster.state_dir))
    assert status == 1 and ill(report) == {"epochs"}, report["summary"]
    assert f"its highest epoch is {seen}, and the database is at {int(older) + 1}" in found["what"], found
    assert "stop all proxies" in found["mend"] and f"remove {lock}," in found["mend"], found
    patient.stop_proxies()
    lock.unlink()
    patient.start_proxies()
    patient.restart_engine()
    patient.wait_well()
    assert int(lock.read_text()) == int(older) + 2


def test_a_full_orchestrator_is_named_with_what_stalls_for_it(workspace):
    patient = Patient(workspace / "crowded", metadata_agent={"alter_deadline": "2s"}, orchestrator={"max_engines": 1})
    try:
        status, report = patient.look()
        capacity = finding(report, "capacity", "orchestrator.max_engines")
        assert status == 1 and ill(report) == {"capacity"}, report["summary"]
        assert "1 engine of at most 1: no engine can be started" in capacity["what"], capacity
        _, _, unit = patient.control.make("waiting")
        (answer,) = patient.control.execute(f"ALTER RESOURCE UNIT {unit} MIN_ENGINES 1")
        alteration = answer["alteration"]
        wait_until(lambda: patient.progress(alteration) == "stalled", HEAL_WITHIN_S, "it is stalled", 0.2)
        status, report = patient.look()
        assert status == 1 and ill(report) == {"capacity", "stalled", "desired engines"}, report["summary"]
        stalled = finding(report, "stalled", alteration)
        for part in (f"ALTER RESOURCE UNIT {unit} MIN_ENGINES 1", "stalled at ", "limit of 1 engines reached"):
            assert part in stalled["what"], (part, stalled)
        assert "raise orchestrator.max_engines and restart the proxies" in capacity["mend"], capacity
        patient.cluster.settings["orchestrator"] = {"max_engines": 20}
        patient.file = patient.cluster.write("doctor")
        patient.stop_proxies()
        patient.start_proxies()
        patient.wait_well()
        assert patient.progress(alteration) == "converged"
    finally:
        patient.cluster.close()
