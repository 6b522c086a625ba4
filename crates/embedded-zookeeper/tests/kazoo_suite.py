#!/usr/bin/env python3
"""What kazoo expects of a server: kazoo_suite.py HOST:PORT

Each function below is one behaviour, run with two clients in a folder of its own. Ends with a line
`kazoo: N passed, N failed` and exit status 1 if one failed. Works on the embedded server and on ZooKeeper itself.
"""

import sys
import threading
import traceback
import uuid

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    InvalidACLError,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.protocol.states import EventType
from kazoo.security import ACL, Id, make_digest_acl, make_digest_acl_credential

WAIT_S = 10


def awaited(event):
    assert event.wait(WAIT_S), "nothing happened in %d s" % WAIT_S


def a_created_node_reads_back(one, two, root):
    assert one.create(root + "/a", b"x") == root + "/a"
    data, stat = two.get(root + "/a")
    assert (data, stat.version, stat.dataLength, stat.ephemeralOwner) == (b"x", 0, 1, 0)
    try:
        two.create(root + "/a")
        raise AssertionError("made twice")
    except NodeExistsError:
        pass
    path, stat = one.create(root + "/b", b"yy", include_data=True)
    assert (path, stat.dataLength) == (root + "/b", 2)


def versions_are_checked(one, two, root):
    one.create(root + "/a", b"0")
    assert one.set(root + "/a", b"1", version=0).version == 1
    for wrong in (lambda: two.set(root + "/a", b"2", version=0), lambda: two.delete(root + "/a", version=0)):
        try:
            wrong()
            raise AssertionError("a stale version was taken")
        except BadVersionError:
            pass
    one.create(root + "/a/b")
    try:
        one.delete(root + "/a")
        raise AssertionError("a node with children was deleted")
    except NotEmptyError:
        pass
    one.delete(root + "/a", recursive=True)
    assert two.exists(root + "/a") is None
    try:
        two.get(root + "/a")
        raise AssertionError("a deleted node was read")
    except NoNodeError:
        pass


def sequences_rise_and_ephemerals_go_with_their_session(one, two, root):
    first = one.create(root + "/n-", sequence=True, ephemeral=True)
    second = one.create(root + "/n-", sequence=True)
    assert (first[-10:], second[-10:]) == ("0000000000", "0000000001"), (first, second)
    assert two.exists(first).ephemeralOwner == one.client_id[0]
    gone = threading.Event()
    assert two.exists(first, watch=lambda event: event.type == EventType.DELETED and gone.set())
    one.stop()
    awaited(gone)
    assert two.get_children(root) == [second.rsplit("/", 1)[1]]
    one.start(timeout=WAIT_S)


def watches_fire_once(one, two, root):
    heard = []
    fired = threading.Event()

    def watch(event):
        heard.append(event.type)
        fired.set()

    assert one.exists(root + "/a", watch=watch) is None
    two.create(root + "/a", b"")
    awaited(fired)
    two.set(root + "/a", b"x")
    one.sync(root)
    assert heard == [EventType.CREATED], heard
    fired.clear()
    one.get_children(root, watch=watch)
    two.create(root + "/b")
    awaited(fired)
    assert heard == [EventType.CREATED, EventType.CHILD], heard


def recipes_of_watching_follow_changes(one, two, root):
    names = []
    seen = threading.Event()

    @one.ChildrenWatch(root)
    def follow(children):
        names[:] = sorted(children)
        if names == ["a", "b", "c"]:
            seen.set()

    for name in "abc":
        two.create(root + "/" + name)
    awaited(seen)


def the_lock_recipe_excludes_and_hands_over(one, two, root):
    held = one.Lock(root + "/lock", "one")
    waiting = two.Lock(root + "/lock", "two")
    assert held.acquire(timeout=WAIT_S)
    assert not waiting.acquire(blocking=False)
    assert waiting.contenders()[0] == "one"
    got = threading.Event()
    thread = threading.Thread(target=lambda: waiting.acquire(timeout=WAIT_S) and got.set())
    thread.start()
    held.release()
    awaited(got)
    thread.join()
    waiting.release()


def an_election_is_won_by_the_one_that_is_left(one, two, root):
    order = []
    leading = threading.Event()
    leave = threading.Event()

    def lead_first():
        order.append("one")
        leading.set()
        leave.wait(WAIT_S)

    first = threading.Thread(target=lambda: one.Election(root + "/e", "one").run(lead_first))
    first.start()
    awaited(leading)
    second = threading.Thread(target=lambda: two.Election(root + "/e", "two").run(lambda: order.append("two")))
    second.start()
    leave.set()
    second.join(WAIT_S)
    first.join(WAIT_S)
    assert order == ["one", "two"], order


def a_transaction_happens_as_a_whole_or_not_at_all(one, two, root):
    one.create(root + "/a", b"0")
    good = one.transaction()
    good.check(root + "/a", 0)
    good.create(root + "/b", b"1")
    good.set_data(root + "/a", b"2")
    good.delete(root + "/b")
    results = good.commit()
    assert results[1] == root + "/b" and results[2].version == 1, results
    bad = two.transaction()
    bad.create(root + "/c")
    bad.check(root + "/a", 0)
    bad.delete(root + "/a")
    results = bad.commit()
    kinds = [type(result) for result in results]
    assert kinds == [RolledBackError, BadVersionError, RuntimeInconsistency], kinds
    assert two.get_children(root) == ["a"]


def access_is_enforced(one, two, root):
    one.add_auth("digest", "me:secret")
    mine = make_digest_acl("me", "secret", all=True)
    one.create(root + "/a", b"x", acl=[mine])
    for denied in (
        lambda: two.get(root + "/a"),
        lambda: two.set(root + "/a", b""),
        lambda: two.create(root + "/a/b"),
        lambda: two.get_children(root + "/a"),
        lambda: two.set_acls(root + "/a", [mine]),
    ):
        try:
            denied()
            raise AssertionError("a stranger was let in")
        except NoAuthError:
            pass
    acls, _ = one.get_acls(root + "/a")
    assert acls[0].id.id == make_digest_acl_credential("me", "secret"), acls
    two.add_auth("digest", "me:secret")
    assert two.get(root + "/a")[0] == b"x"
    try:
        one.create(root + "/b", acl=[ACL(31, Id("nonsense", "x"))])
        raise AssertionError("an unknown scheme was taken")
    except InvalidACLError:
        pass


BEHAVIOURS = [
    a_created_node_reads_back,
    versions_are_checked,
    sequences_rise_and_ephemerals_go_with_their_session,
    watches_fire_once,
    recipes_of_watching_follow_changes,
    the_lock_recipe_excludes_and_hands_over,
    an_election_is_won_by_the_one_that_is_left,
    a_transaction_happens_as_a_whole_or_not_at_all,
    access_is_enforced,
]


def run(behaviour, hosts):
    one, two = (KazooClient(hosts=hosts, timeout=5) for _ in range(2))
    root = "/kazoo-%s" % uuid.uuid4().hex[:8]
    try:
        one.start(timeout=WAIT_S)
        two.start(timeout=WAIT_S)
        one.create(root)
        behaviour(one, two, root)
        two.delete(root, recursive=True)
        return True
    except Exception:
        traceback.print_exc()
        return False
    finally:
        for client in (one, two):
            client.stop()
            client.close()


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    failed = 0
    for behaviour in BEHAVIOURS:
        passed = run(behaviour, sys.argv[1])
        failed += not passed
        print("%s: %s" % ("ok" if passed else "FAILED", behaviour.__name__), flush=True)
    print("kazoo: %d passed, %d failed" % (len(BEHAVIOURS) - failed, failed))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
