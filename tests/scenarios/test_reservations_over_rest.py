"""Programs that share a resource pool with engines: reservations over HTTP, and the example of the client crate."""

import concurrent.futures
import signal
import subprocess
import uuid

import pytest

from harness.control import Control
from harness.processes import BINARY
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
    assert alice.act(granted["id"], "release", pool)[0] == 200
    status, late = alice.act(granted["id"], "renew", pool)
    assert (status, late["code"]) == (404, "UNKNOWN_RESERVATION"), late
    audited = [
        it["statement"] for it in control.execute("SHOW AUDIT FOR USER 'alice' LIMIT 100") if it["outcome"] == "committed"
    ]
    assert sum(it.startswith("RESERVE ") for it in audited) >= 2, audited
    assert sum(it.startswith("RELEASE ") for it in audited) == 2, audited


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
    cluster = own_cluster()
    control = Control(cluster.addresses["proxy-a"])
    tenant, pool, _ = control.make("t_1", users="'alice'")
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
