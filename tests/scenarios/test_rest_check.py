"""The tests' own definition of rest: each way in which an installation is not at rest is seen, and named.

What hundreds of tests rely on must be able to fail. The masters are stopped meanwhile, because they would mend it.
"""

import json
import subprocess

import pytest

from harness.control import Control
from harness.rest import at_rest, look
from harness.waiting import wait_until

SLOT = "tenant = 'rested' AND ordinal = 0"


@pytest.fixture
def resting(own_cluster):
    cluster = own_cluster(candidates=("proxy-a", "proxy-b"))
    Control(cluster.addresses["proxy-a"]).make("rested", options=", MIN_ENGINES 1")
    (name,) = at_rest(cluster)
    proxies = [cluster.programs[it] for it in ("proxy-a", "proxy-b")]
    for it in proxies:
        it.pause()
    # This ends two sessions and changes nothing else; a surviving candidate may log that it lost its place.
    cluster.logs.allow("could not stand for election")
    wait_until(lambda: not cluster.nodes.children("lock/master"), 20, "the masters' sessions have ended")
    yield cluster, name
    for it in proxies:
        it.resume()


def test_the_rest_check_finds_every_difference_and_nothing_else(resting):
    cluster, name = resting
    nodes, rows = cluster.nodes, cluster.database.rows
    assert look(cluster) == ({name: cluster.engines.all()[name].uid}, [])

    def seen(*words):
        _, different = look(cluster)
        assert len(different) == len(words) and all(w in d for w, d in zip(words, different, strict=True)), different

    for node, words in (
        ("drains/stranger", "drain order of stranger"),
        ("engines/stranger", "permit of stranger"),
        ("lock/alter", "alter node"),
    ):
        nodes.client.create(nodes.path(node), b"{}")
        seen(words)
        nodes.client.delete(nodes.path(node))
        seen()
    stray = subprocess.Popen(["sleep", "60"], cwd=cluster.state_dir / "engines" / name)
    try:
        seen(f"process {stray.pid} works in")
    finally:
        stray.kill()
        stray.wait()
    hidden = cluster.state_dir / "engines" / ".half"
    hidden.mkdir()
    seen(".half is left")
    hidden.rmdir()
    rows("UPDATE alteration SET progress = 'converging' WHERE object_kind = 'tenant'")
    seen("is converging")
    rows("UPDATE alteration SET progress = 'converged' WHERE object_kind = 'tenant'")
    rows(f"UPDATE slot SET incarnation = incarnation + 100 WHERE {SLOT}")
    seen(
        "has no engine that has not ended",
        f"engine {name} of the database has not ended and no slot wants it",
        f"engine {name} runs",
        f"permit of {name}, which is not wanted",
        f"engine {name} is charged and not wanted",
    )
    rows(f"UPDATE slot SET incarnation = incarnation - 100 WHERE {SLOT}")
    for column, value, words in (
        ("uid", "'another'", ("has uid", "is for uid", "is registered with uid", f"reservation of {name} is used by uid")),
        ("config", "'another'", ("has config",)),
        ("end_reason", "'it is to go'", ("is to end: it is to go",)),
    ):
        ((before,),) = rows(f"SELECT {column} FROM engine WHERE name = '{name}'")
        rows(f"UPDATE engine SET {column} = {value} WHERE name = '{name}'")
        seen(*words)
        rows(f"UPDATE engine SET {column} = {'NULL' if before is None else repr(before)} WHERE name = '{name}'")
    seen()
    for counter, words in (
        ("held_cpu = held_cpu {} WHERE kind = 3", ("tenant rested/rested_p holds", "shared part", "unguaranteed part")),
        ("held_memory = held_memory {} WHERE kind = 4", ("pool rested_p holds",)),
        ("queued = queued {} WHERE kind = 4", ("queue of pool rested_p has 1 requests, there are 0",)),
        ("shared_held_engines = shared_held_engines {} WHERE kind = 4", ("of its shared part",)),
    ):
        rows(f"UPDATE quota_scope SET {counter.format('+ 1')}")
        seen(*words)
        rows(f"UPDATE quota_scope SET {counter.format('- 1')}")
    rows("UPDATE reservation SET state = 'released'")
    seen("is not charged", "tenant rested/rested_p holds", "pool rested_p holds")
    rows("UPDATE reservation SET state = 'locked'")
    seen(f"the reservation of {name} is locked by uid")
    rows("UPDATE reservation SET state = 'used'")
    seen()
    live = nodes.bytes(f"engines/{name}/live")
    nodes.client.set(nodes.path(f"engines/{name}/live"), json.dumps(json.loads(live) | {"uid": "another"}).encode())
    seen("is registered with uid another")
    nodes.client.set(nodes.path(f"engines/{name}/live"), live)
    cluster.engines.all()[name].kill()
    wait_until(lambda: any("does not run" in it for it in look(cluster)[1]), 10, "it is seen that the engine is dead")
