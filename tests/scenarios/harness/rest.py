"""The check that an installation is at rest: the running engines match the catalog, and nothing is left over.

It reads SQL, ZooKeeper, the state directory and this machine's processes, never the product's SHOW, so that a wrong SHOW and a
wrong master cannot agree. A look in the middle of a change fails once and is repeated until the deadline. An engine in the
queue of its pool is at rest without an instance.
"""

import time

from kazoo.exceptions import KazooException

from harness.ledger import Ledger

REST_WITHIN_S = 45
LOOK_EVERY_S = 0.15

WANTED = (
    "SELECT e.name, e.uid, s.tenant, s.pool, s.unit, s.ordinal, s.incarnation, e.config, e.end_reason "
    "FROM slot s LEFT JOIN engine e ON e.tenant = s.tenant AND e.pool = s.pool AND e.unit = s.unit "
    "AND e.ordinal = s.ordinal AND e.incarnation = s.incarnation AND e.ended_at_ms IS NULL"
)
UNENDED = "SELECT name FROM engine WHERE ended_at_ms IS NULL"
OPEN = "SELECT id, progress, reason FROM alteration WHERE progress IN ('converging', 'stalled')"


def at_rest(cluster, within_s=REST_WITHIN_S, registry=True):
    """Waits until the installation is at rest and returns its engines (name → uid); fails with every difference. `cluster` has
    `database`, `nodes`, and `engines` (`harness.engines` or `harness.pod_engines`). Without `registry` ZooKeeper is left out.
    """
    deadline = time.monotonic() + within_s
    while True:
        engines, differences = look(cluster, registry)
        if not differences:
            return engines
        if time.monotonic() >= deadline:
            raise AssertionError(f"not at rest within {within_s} s:\n" + "\n".join(f"  {it}" for it in differences))
        time.sleep(LOOK_EVERY_S)


def look(cluster, registry=True):
    ledger = Ledger(cluster.database)
    wanted, queued, different = wanted_engines(cluster.database, ledger)
    running, more = cluster.engines.running()
    different += more
    for name in sorted(wanted.keys() - running.keys()):
        different.append(f"engine {name} is wanted and does not run")
    for name in sorted(running.keys() - wanted.keys()):
        different.append(f"engine {name} runs (pid {running[name]['pid']}) and is not wanted")
    for name in sorted(wanted.keys() & running.keys()):
        for key in ("uid", "tenant", "pool", "unit", "ordinal", "incarnation", "config"):
            want, have = wanted[name][key], running[name][key]
            if not same(key, want, have):
                different.append(f"engine {name} has {key} {have}, wanted is {want}")
    if registry:
        try:
            different += registrations(cluster.nodes, wanted)
        except KazooException as error:
            different.append(f"ZooKeeper can't be read: {error!r}")
    uids = {name: it["uid"] for name, it in wanted.items()}
    return uids, different + ledger.differences(uids, queued)


def same(key, want, have):
    # The label is the beginning of the hash that the database has in full.
    return str(want).startswith(str(have)) if key == "config" else want == have


def wanted_engines(database, ledger):
    wanted, different = {}, []
    rows = database.rows(WANTED)
    queued = ledger.queued({name: pool for name, uid, _, pool, *_ in rows if name is not None and uid is None})
    for name, uid, tenant, pool, unit, ordinal, incarnation, config, end_reason in rows:
        if name in queued:
            continue
        slot = f"slot {tenant}/{pool}/{unit}/{ordinal} incarnation {incarnation}"
        if name is None:
            different.append(f"{slot} has no engine that has not ended")
            continue
        if uid is None:
            different.append(f"{slot}: engine {name} has no uid")
        if end_reason is not None:
            different.append(f"{slot}: engine {name} is to end: {end_reason}")
        wanted[name] = {
            "uid": uid,
            "tenant": tenant,
            "pool": pool,
            "unit": unit,
            "ordinal": int(ordinal),
            "incarnation": int(incarnation),
            "config": config,
        }
    for (name,) in database.rows(UNENDED):
        if name not in wanted and name not in queued:
            different.append(f"engine {name} of the database has not ended and no slot wants it")
    for id_, progress, reason in database.rows(OPEN):
        different.append(f"alteration {id_} is {progress}: {reason}")
    return wanted, queued, different


def described(uid, pid, labels):
    """An engine that runs, with what is compared."""
    return {
        "pid": pid,
        "uid": uid,
        "tenant": labels["tenant_name"],
        "pool": labels["pool_name"],
        "unit": labels["unit_name"],
        "ordinal": int(labels["enginehouse.io/slot"]),
        "incarnation": int(labels["enginehouse.io/incarnation"]),
        "config": labels["enginehouse.io/config"],
    }


def registrations(nodes, wanted):
    different = []
    permits = set(nodes.children("engines"))
    for name in sorted(permits - wanted.keys()):
        different.append(f"permit of {name}, which is not wanted")
    for name in sorted(wanted.keys() - permits):
        different.append(f"engine {name} has no permit")
    for name in sorted(permits & wanted.keys()):
        permit, live = nodes.read(f"engines/{name}"), nodes.read(f"engines/{name}/live")
        uid = wanted[name]["uid"]
        if permit is not None and permit.get("uid") != uid:
            different.append(f"the permit of {name} is for uid {permit.get('uid')}, wanted is {uid}")
        if live is None:
            different.append(f"engine {name} is not registered")
        elif live.get("uid") != uid:
            different.append(f"engine {name} is registered with uid {live.get('uid')}, wanted is {uid}")
    for name in nodes.children("drains"):
        different.append(f"drain order of {name}")
    if nodes.exists("lock/alter"):
        different.append(f"alter node {nodes.children('lock/alter')}")
    return different
