"""Programs that share a resource pool with engines: reservations over HTTP, and the example of the client crate."""

import concurrent.futures
import re
import signal
import subprocess
import uuid

import pytest

from harness.control import Control
from harness.databases import SqliteDatabase
from harness.processes import BINARY, run
from harness.reservations import Holder
from harness.waiting import wait_until

EXAMPLE = BINARY.parent / "examples/share_a_pool"
ONE_CPU = {"type": "Cpu", "cpu": 1}
GRANTED_WITHIN_S = 30
PROGRAMS = 12


def held_cpu(database):
    """What all pools hold, in thousandths of a core."""
    (row,) = database.rows("SELECT COALESCE(SUM(held_cpu), 0) FROM quota_scope WHERE kind = 4")
    return int(row[0])


@pytest.mark.quick
def test_a_program_and_engines_share_the_capacity_of_a_pool(own_standalone):
    own_standalone.start()
    control = Control(own_standalone.address)
    tenant, pool, _ = control.make("t_1", users="'alice'")
    control.execute(f"ALTER RESOURCE POOL {pool} CAPACITY (CPU 4) WAIT '1m'")
    alice, bob = Holder(own_standalone.address, "alice"), Holder(own_standalone.address, "bob")

    reserved = alice.reserved(tenant, pool, {"type": "Load", "memory": "1G", "cpu": 3}, creator="launcher")
    assert (reserved["cpu_m"], reserved["memory"], reserved["user"]) == (3000, 1 << 30, "alice"), reserved
    status, used = alice.act(reserved["id"], "confirm", pool, lease="10m")
    assert (status, used["state"]) == (200, "used"), used

    def short():
        # Until the master has counted, or while others wait, a request is queued instead.
        status, found = alice.request(tenant, pool, {"type": "Cpu", "cpu": 2})
        return status == 409 and found

    refused = wait_until(short, GRANTED_WITHIN_S, "a request is refused")
    assert (refused["sqlstate"], refused["code"], refused["errorCode"]) == ("53000", "POOL_CPU", 46011), refused
    assert (refused["asked"], refused["left"], refused["limit"]) == (2000, 1000, 4000), refused
    assert refused["retryable"] is True and refused["scope"] == {"kind": "pool", "name": pool}, refused
    status, never = alice.request(tenant, pool, {"type": "Cpu", "cpu": 5})
    assert (status, never["sqlstate"], never["retryable"]) == (409, "53400", False), never

    for resource, code in (({"type": "Disk"}, 46091), ({"type": "Cpu", "cpu_m": -1}, None)):
        status, found = alice.request(tenant, pool, resource)
        assert (status, found["sqlstate"], found.get("errorCode")) == (422, "22023", code), found
    for holder, action in ((bob, "release"), (Holder(alice.address, "alice", "i-2"), "confirm")):
        status, found = holder.act(reserved["id"], action, pool)
        assert (status, found["code"]) == (404, "UNKNOWN_RESERVATION"), found
    status, found = bob.request(tenant, pool, ONE_CPU)
    assert (status, found["sqlstate"]) == (403, "42501"), found

    # The rest of the capacity is granted as soon as the first one is released.
    with concurrent.futures.ThreadPoolExecutor() as threads:
        waiting = threads.submit(alice.reserved, tenant, pool, {"type": "Cpu", "cpu": 4})
        wait_until(lambda: alice.get("", "state=waiting")[1]["rows"], GRANTED_WITHIN_S, "the request waits")
        (queued,) = alice.get("", "state=waiting")[1]["rows"]
        status, queued = alice.get(queued["id"])
        assert queued["position"] == 1 and "left 1 of 4" in queued["reason"], queued
        status, released = alice.act(reserved["id"], "release", pool)
        assert (status, released["state"]) == (200, "released"), released
        granted = waiting.result()
    # A program that uses more than it reserved is charged for it, which the log reports.
    logged = r'event="over_reservation" id=(\S+)'
    assert not own_standalone.logs.count(logged)
    status, used = alice.act(granted["id"], "confirm", pool, resource={"type": "Cpu", "cpu": 5})
    assert (status, used["state"], used["cpu_m"]) == (200, "used", 5000), used
    assert held_cpu(SqliteDatabase(own_standalone.data / "metadata.sqlite")) == 5000
    (reported,) = wait_until(lambda: re.findall(logged, own_standalone.logs.text()), GRANTED_WITHIN_S, "the log reports it")
    assert reported == granted["id"]
    assert alice.act(granted["id"], "release", pool)[0] == 200
    status, late = alice.act(granted["id"], "renew", pool)
    assert (status, late["code"]) == (404, "UNKNOWN_RESERVATION"), late
    audited = [
        it["statement"] for it in control.execute("SHOW AUDIT FOR USER 'alice' LIMIT 100") if it["outcome"] == "committed"
    ]
    assert sum(it.startswith("RESERVE ") for it in audited) >= 2, audited
    assert sum(it.startswith("RELEASE ") for it in audited) == 2, audited


@pytest.mark.quick
def test_a_program_registers_the_capacity_that_engines_wait_for(own_standalone):
    own_standalone.start()
    control = Control(own_standalone.address)
    tenant, pool, unit = control.make("t_1", users="'alice'")
    control.execute(f"ALTER RESOURCE POOL {pool} CAPACITY REGISTERED WAIT '1m'")
    alice, eve = Holder(own_standalone.address, "alice"), Holder(own_standalone.address, "eve")
    provider, another = (Holder(own_standalone.address, "admin", instance) for instance in ("p-1", "p-2"))
    two_cpu = {"type": "Load", "memory": "4G", "cpu": 2}
    for user in (alice, eve):
        status, refused = user.register(pool, two_cpu)
        assert (status, refused["sqlstate"]) == (403, "42501"), refused
    status, closed = alice.request(tenant, pool, ONE_CPU)
    assert (status, closed["code"], closed["retryable"]) == (409, "POOL_NOT_REGISTERED", True), closed

    # An engine is queued with that reason, and starts when the capacity is registered.
    engine = control.execute(f"START ENGINE {tenant} {pool} {unit}")[0]["engine"]
    control.wait_engine(tenant, engine, reason="queued at position 1: .*POOL_NOT_REGISTERED")
    status, registered = provider.register(pool, two_cpu)
    assert (status, registered["state"]) == (200, "registered"), registered
    assert another.register(pool, two_cpu)[0] == 409
    control.wait_engine(tenant, engine, state="ready")
    reserved = alice.reserved(tenant, pool, ONE_CPU)
    described = {it["property"]: it["value"] for it in control.execute(f"DESCRIBE RESOURCE POOL {pool}")}
    assert described["registered by"] == "provider, instance p-1, user admin", described
    quotas = [it for it in control.execute(f"SHOW QUOTAS POOL {pool}") if it["scope"] == f"pool {pool}"]
    assert {it["resource"]: it["limit"] for it in quotas}["CPU"] == "2", quotas
    status, never = alice.request(tenant, pool, {"type": "Cpu", "cpu": 3})
    assert (status, never["code"], never["limit"]) == (409, "POOL_CPU", 2000), never

    # The lease ends by itself: what is granted stays, and another engine waits for the next registration.
    assert provider.register(pool, {"type": "Load", "memory": "8G", "cpu": 4}, lease="1s")[0] == 200
    wait_until(lambda: provider.registration(pool)[1]["state"] == "expired", GRANTED_WITHIN_S, "the lease ends")
    status, closed = alice.request(tenant, pool, ONE_CPU)
    assert (status, closed["code"]) == (409, "POOL_NOT_REGISTERED"), closed
    second = control.execute(f"START ENGINE {tenant} {pool} {unit}")[0]["engine"]
    control.wait_engine(tenant, second, reason="POOL_NOT_REGISTERED")
    assert another.register(pool, {"type": "Load", "memory": "8G", "cpu": 4})[0] == 200
    control.wait_engine(tenant, second, state="ready")

    # Without force reservations stay, with it those of programs are lost; engines run on.
    assert another.registration(pool, "DELETE", "instance=p-2")[1]["state"] == "unregistered"
    assert alice.get(reserved["id"])[1]["state"] == "locked"
    assert another.registration(pool, "DELETE", "force=true")[0] == 200
    assert alice.get(reserved["id"])[1]["state"] == "lost"
    assert {it["engine"] for it in control.engines(tenant) if it["state"] == "ready"} == {engine, second}


@pytest.mark.quick
def test_the_example_program_reserves_works_and_releases(own_standalone):
    own_standalone.start()
    control = Control(own_standalone.address)
    tenant, pool, _ = control.make("t_1", users="'alice'")
    command = [EXAMPLE, own_standalone.address, "alice", tenant, pool]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "worked: 5050" in done.stdout and "released" in done.stdout, done.stdout
    assert not Holder(own_standalone.address, "alice").get()[1]["rows"]


def test_a_killed_proxy_costs_programs_no_call_and_charges_nothing_twice(own_cluster):
    cluster = own_cluster(access={"resource_providers": ["carol"]})
    control = Control(cluster.addresses["proxy-a"])
    tenant, pool, unit = control.make("t_1", users="'alice'")
    control.execute(f"ALTER RESOURCE POOL {pool} CAPACITY (CPU 4) WAIT '1m'")
    both = f"{cluster.addresses['proxy-b']},{cluster.addresses['proxy-a']}"
    command = [EXAMPLE, both, "alice", tenant, pool]
    programs = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(PROGRAMS)]
    try:
        alice = Holder(cluster.addresses["proxy-a"], "alice")
        wait_until(lambda: alice.get("", "state=used")[1]["rows"], GRANTED_WITHIN_S, "a program works")
        cluster.programs["proxy-b"].send(signal.SIGKILL)
        for program in programs:
            output, _ = program.communicate(timeout=180)
            assert program.returncode == 0, output
    finally:
        for program in programs:
            program.kill()
    (row,) = cluster.database.rows("SELECT COUNT(*) FROM reservation WHERE holder = 'external'")
    assert int(row[0]) == PROGRAMS, "a request was reserved twice"
    assert held_cpu(cluster.database) == 0
    # One request under one key, at both proxies.
    cluster.start_program("proxy-b")
    key = uuid.uuid4().hex
    first = alice.request(tenant, pool, ONE_CPU, key, wait="30s")
    second = Holder(cluster.addresses["proxy-b"], "alice").request(tenant, pool, ONE_CPU, key, wait="30s")
    assert first[1]["id"] == second[1]["id"], (first, second)

    # A registration whose proxy is killed: the answer comes from the other one, and there is one change.
    control.execute(f"ALTER RESOURCE POOL {pool} CAPACITY REGISTERED WAIT '1m'")
    engine = control.execute(f"START ENGINE {tenant} {pool} {unit}")[0]["engine"]
    control.wait_engine(tenant, engine, reason="POOL_NOT_REGISTERED")
    doctor = ["doctor", "--config", cluster.write("doctor"), "--format", "json"]

    def reported():
        return "no program has registered its capacity" in run(doctor, within_s=60, cwd=cluster.folder).stdout

    wait_until(reported, GRANTED_WITHIN_S, "the doctor reports the queued request")
    provider = Holder(cluster.addresses["proxy-b"], "carol")
    # One for that reservation, and one for the engine.
    key, capacity = uuid.uuid4().hex, {"type": "Cpu", "cpu": 2}
    body = {"name": "provider", "instance": provider.instance, "capacity": capacity}
    provider.send_only("PUT", f"/api/v1/pools/{pool}/registration", body, key)
    cluster.programs["proxy-b"].send(signal.SIGKILL)
    provider = Holder(cluster.addresses["proxy-a"], "carol")
    status, registered = provider.register(pool, capacity, key)
    assert (status, registered["state"], registered["user"]) == (200, "registered", "carol"), registered
    (row,) = cluster.database.rows("SELECT COUNT(*) FROM audit WHERE statement LIKE 'REGISTER %'")
    assert int(row[0]) == 1, "it was registered twice"
    control.wait_engine(tenant, engine, state="ready")
    assert not reported()
    cluster.start_program("proxy-b")
