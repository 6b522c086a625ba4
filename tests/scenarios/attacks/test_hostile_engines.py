"""Rows D1 to D7: what the holder of the ZooKeeper password of one engine can do with it. Users who run code in an engine can
read it."""

import contextlib
import json
import time

import pytest
from kazoo.exceptions import NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from harness.captured_engine import captured_engine
from harness.memory import no_growth
from harness.stolen_keys import ROOT, TIMEOUT_S, Stolen
from harness.tcp_relay import listening
from harness.tier import some
from harness.waiting import wait_until

# The nodes of D6 that are created in one request.
AT_ONCE = 500
# What the installation may grow by in D6 for each stray, and in D7, whose node it keeps.
STRAY_KIB, REGISTRATION_MIB = 4, 16
# The longest content that ZooKeeper accepts, less what a request has beside it.
REGISTRATION_BYTES = (1 << 20) - 1024
SERVED_WITHIN_S = 5
LEFT_BEHIND = r"permit left behind; only zookeeper's super user can delete it engine=d6-"


@pytest.fixture(scope="module")
def stolen(shared_target):
    return Stolen(shared_target)


@pytest.fixture
def thief(stolen):
    """The user of the engine of `sales`, who may read its own permit. Afterwards both permits are as they were."""
    with stolen.login("master", stolen.master) as master, stolen.login_as_engine("sales") as client:
        permits = [f"{ROOT}/engines/{it}" for it in stolen.names.values()]
        nodes = [*permits, *(f"{it}/live" for it in permits)]
        before = [master.get(it) for it in nodes]
        assert client.get(permits[0]) == before[0]
        yield client
        assert [master.get(it) for it in nodes] == before
        assert {name for it in permits for name in master.get_children(it)} == {"live", "answered"}


def denied(client, attempts):
    for attempt in attempts:
        with pytest.raises(NoAuthError):
            attempt(client)


@pytest.fixture
def paths(stolen):
    """The permits of the thief's own engine and of another one."""
    return f"{ROOT}/engines/{stolen.names['sales']}", f"{ROOT}/engines/{stolen.names['finance']}"


def test_d1_the_password_of_an_engine_registers_no_other(target, thief, paths):
    own, other = paths
    content = json.dumps(json.loads(thief.get(f"{own}/live")[0]) | {"address": "127.0.0.1:1"}).encode()
    denied(
        thief,
        [
            lambda it: it.create(f"{other}/live", content, ephemeral=True),
            lambda it: it.create(f"{other}/answered", b""),
            lambda it: it.create(f"{other}/x", b""),
            lambda it: it.create(f"{other}/live/x", b""),
            lambda it: it.create(f"{own}-2", b"{}"),
            lambda it: it.create(f"{ROOT}/engines/x", b"{}"),
            lambda it: it.create(f"{ROOT}/agents/x", content, ephemeral=True),
            lambda it: it.create(f"{ROOT}/x", b""),
        ],
    )


def test_d2_the_password_of_an_engine_changes_no_registration_and_reads_no_other(target, thief, paths):
    own, other = paths
    assert thief.get(f"{own}/live")[0], "its own one it may read"
    denied(
        thief,
        [
            *(lambda it, path=path: it.get(path) for path in (other, f"{other}/live", f"{other}/answered")),
            *(lambda it, path=path: it.set(path, b"{}") for path in (own, f"{own}/live", f"{own}/answered")),
            *(lambda it, path=path: it.set(path, b"{}") for path in (other, f"{other}/live", f"{other}/answered")),
            *(lambda it, path=path: it.delete(f"{path}/live") for path in paths),
            *(lambda it, path=path: it.delete(f"{path}/answered") for path in paths),
            lambda it: it.get_children(other),
        ],
    )
    # A permit has children, but its parent denies its deletion before that is looked at.
    denied(thief, (lambda it, path=path: it.delete(path) for path in paths))


def test_d3_the_password_of_an_engine_writes_no_lock_alteration_or_drain_order(target, thief, stolen):
    drains = [f"{ROOT}/drains/{it}" for it in stolen.names.values()]
    order = json.dumps({"version": 1, "grace_ms": 0, "reason": "stopped"}).encode()
    denied(
        thief,
        [
            lambda it: it.create(f"{ROOT}/lock/master/x-lock-0000000000", b"", ephemeral=True),
            lambda it: it.create(f"{ROOT}/lock/master/x-lock-", b"", ephemeral=True, sequence=True),
            lambda it: it.create(f"{ROOT}/lock/alter", b""),
            lambda it: it.create(f"{ROOT}/lock/x", b""),
            *(lambda it, path=path: it.create(path, order) for path in drains),
            lambda it: it.get(f"{ROOT}/bell"),
            lambda it: it.set(f"{ROOT}/bell", b""),
            *(lambda it, name=name: it.delete(f"{ROOT}/{name}") for name in ("lock", "drains", "engines", "agents", "bell")),
        ],
    )


def test_d4_the_password_of_an_engine_lists_nothing_but_its_own_permit(target, thief, paths):
    own, other = paths
    assert sorted(thief.get_children(own)) == ["answered", "live"]
    lists = [ROOT, *(f"{ROOT}/{it}" for it in ("engines", "drains", "agents", "lock", "lock/master", "bell")), other]
    denied(thief, (lambda it, path=path: it.get_children(path) for path in lists))


def test_d5_the_password_of_an_engine_sets_no_access_list(target, thief, stolen, paths):
    own, other = paths
    mine = [make_digest_acl(f"engine-{stolen.names['sales']}", stolen.launched("sales")["credential"]["password"], all=True)]
    nodes = [own, f"{own}/live", f"{own}/answered", other, f"{other}/live", ROOT]
    nodes += [f"{ROOT}/{it}" for it in ("engines", "drains", "agents", "lock", "lock/master", "bell")]
    for acl in (mine, OPEN_ACL_UNSAFE):
        denied(thief, (lambda it, path=path, acl=acl: it.set_acls(path, acl) for path in nodes))


def assert_others_are_served(target):
    """A query of another tenant, and statements that the master and all proxies carry out."""
    for statement, user in (("SELECT 40 + 2 AS answer", "bob"), ("SHOW ENGINES finance", "bob"), ("SHOW MASTER", "admin")):
        began = time.monotonic()
        assert target.execute(statement, user), statement
        assert time.monotonic() - began < SERVED_WITHIN_S, statement


def start_and_end_another(target):
    """A new engine registers, and its permit is deleted."""
    target.execute("CREATE TENANT d6_other RESOURCE_POOL_LIST ('shared'), USER_LIST ('superset')")
    target.execute("START ENGINE d6_other shared small WAIT '1m'")
    [started] = target.execute("SHOW ENGINES d6_other")
    target.execute("DROP TENANT d6_other WAIT '1m'")
    assert started["engine"] not in target.standalone.engines.all()


@pytest.mark.parametrize("strays", some([10_000, 100_000], 10_000))
def test_d6_nodes_below_the_permit_of_an_engine_harm_no_other(target, stolen, strays):
    """The engine itself ends like any other. Its permit is left behind, and the master's identity may delete it by hand."""
    target.logs.allow(LEFT_BEHIND)
    with contextlib.ExitStack() as stack, stolen.login("master", stolen.master) as master:
        stack.enter_context(no_growth(target.standalone.program.pid, strays * STRAY_KIB // 1024 + REGISTRATION_MIB))
        with captured_engine(target, stolen, "d6", "carol") as engine, engine.login() as thief:
            for first in range(0, strays, AT_ONCE):
                request = thief.transaction()
                for number in range(first, first + AT_ONCE):
                    request.create(f"{engine.permit}/{number}", b"", acl=OPEN_ACL_UNSAFE)
                assert request.commit()[-1] == f"{engine.permit}/{first + AT_ONCE - 1}"
                if first % (10 * AT_ONCE) == 0:
                    assert_others_are_served(target)
            start_and_end_another(target)
        assert engine.name not in target.standalone.engines.all()
        content = json.loads(master.get(engine.permit)[0])
        assert content["left_behind"] == "its engine left too many nodes below it", content
    for first in range(0, strays, AT_ONCE):
        with stolen.login("master", stolen.master) as master:
            request = master.transaction()
            for number in range(first, first + AT_ONCE):
                request.delete(f"{engine.permit}/{number}")
            request.commit()


def shown(target):
    [engine] = target.execute("SHOW ENGINES d7")
    return engine


def test_d7_a_registration_of_1_mib_is_not_read(target, stolen):
    """It would be valid without its length. No proxy connects to its address, and no other engine is harmed."""
    with listening() as listener:
        listener.setblocking(False)
        with captured_engine(target, stolen, "d7", "carol") as engine, engine.login() as thief:
            content = engine.registration("127.0.0.1:%d" % listener.getsockname()[1])
            with no_growth(target.standalone.program.pid, REGISTRATION_MIB):
                engine.register(thief, content.ljust(REGISTRATION_BYTES))
                assert_others_are_served(target)
                wait_until(lambda: shown(target)["state"] == "lost", TIMEOUT_S, "the master has seen it, and not read it")
                assert shown(target)["address"] is None
            with pytest.raises(BlockingIOError):
                listener.accept()
    assert engine.name not in target.standalone.engines.all()
    with stolen.login("master", stolen.master) as master:
        assert master.exists(engine.permit) is None
