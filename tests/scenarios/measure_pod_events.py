"""The latency of SHOW ENGINES and DESCRIBE ENGINE after changes of a pod, compared with a bare watch of the same pod.

    EH_TEST_ZOOKEEPER=… EH_TEST_POSTGRES=… EH_TEST_KUBERNETES_PROGRAM=… python tests/scenarios/measure_pod_events.py [ROUNDS]

The installation has separate processes and default intervals. This program acts as the scheduler, so that the time of its
verdict is known. Latencies count from before a kubelet (or this program) begins to write to the API server. Each round is the
life of one engine. `docs/performance.md` has the results.
"""

import contextlib
import os
import pathlib
import sys
import tempfile
import threading
import time

sys.path[:0] = map(str, pathlib.Path(__file__).resolve().parents[:2])

import pyhive.exc

from harness.clients import pyhive_session, rows
from harness.control import Control
from harness.pods import PodCluster, Pods
from harness.waiting import wait_until
from kubelet import bearing
from kubelet.status import condition

ROUNDS = 15
WITHIN_S = 60
LOOK_EVERY_S = 0.01
TENANT = "newsworthy"
RUNS = ("starting", "ready")
KINDS = ("unschedulable", "an event", "image can't be pulled", "running", "evicted")


class Noted:
    def __init__(self, reports):
        self.reports, self.seen = reports, []

    def status(self, pod, made):
        self.seen.append((time.monotonic(), {"status": made, "metadata": {"name": pod.key[1]}}))
        self.reports.status(pod, made)

    def event(self, pod, kind, reason, message):
        self.seen.append((time.monotonic(), {"involvedObject": {"name": pod.key[1]}, "message": message}))
        self.reports.event(pod, kind, reason, message)


class Follower:
    def __init__(self, things):
        self.seen, self.things = [], things
        self.thread = threading.Thread(target=self.follow, daemon=True)
        self.thread.start()

    def follow(self):
        for thing in self.things:
            self.seen.append((time.monotonic(), thing))


def first(seen, matches):
    return next((at for at, thing in list(seen) if matches(thing)), None)


def row_of(shown, engine):
    return next((it for it in shown if it["engine"] == engine), None)


def values_of(described, _engine):
    return {it["property"]: it["value"] for it in described}


class News:
    def __init__(self, pods, cluster):
        self.pods, self.cluster = pods, cluster
        self.control = Control(cluster.addresses["proxy-b"])
        self.made = self.control.make(TENANT, places=pods.nodes_of(TENANT))
        self.pool = self.made[1]
        self.namespace = cluster.namespace(TENANT, self.pool)
        self.node = f"node-of-{TENANT}"
        self.kubelet = pods.kubelet
        self.kubelet.reports = self.noted = Noted(self.kubelet.reports)
        self.engine, self.over, self.took = None, threading.Event(), {kind: [] for kind in KINDS}
        self.followers, self.watches = {}, []

    def look(self, statement, answer):
        """The rows of a statement about the engine again and again, as `answer` makes them; `None` when it is refused."""
        with pyhive_session(self.control.address) as session:
            while not self.over.is_set():
                engine = self.engine
                try:
                    yield engine, answer(rows(session, statement.format(engine)), engine)
                except pyhive.exc.OperationalError:
                    yield engine, None
                self.over.wait(LOOK_EVERY_S)

    def begin(self):
        """From now on there are who look; the namespace is there."""
        for resource in ("pods", "events"):
            self.watches.append(self.pods.admin.watch(resource, self.namespace))
            self.followers[resource] = Follower(event for _, event in self.watches[-1])
        self.followers["SHOW"] = Follower(self.look(f"SHOW ENGINES {TENANT}", row_of))
        self.followers["DESCRIBE"] = Follower(self.look(f"DESCRIBE ENGINE {self.pool} '{{}}'", values_of))

    def measure(self, kind, act, written, shown, resource="pods"):
        engine = self.engine
        for seen in (self.noted.seen, *(it.seen for it in self.followers.values())):
            seen.clear()
        began = act()

        def of_this(thing):
            about = thing.get("involvedObject") or thing.get("metadata", {})
            return about.get("name") == engine and written(thing)

        def all_reported():
            at = [began or first(self.noted.seen, of_this), first(self.followers[resource].seen, of_this)]
            at += [first(self.followers[who].seen, lambda it: it[0] == engine and shown(it[1])) for who in ("SHOW", "DESCRIBE")]
            return at if all(at) else None

        began, *heard = wait_until(all_reported, WITHIN_S, f"all followers know: {kind}")
        self.took[kind].append([(it - began) * 1000 for it in heard])

    def round(self, number):
        mine = bearing(tenant_name=TENANT)
        with self.kubelet.fault("start", mine) as start:
            (asked,) = self.control.execute(f"START ENGINE {' '.join(self.made)}")
            self.engine = asked["engine"]
            pods = self.pods.admin
            wait_until(lambda: pods.find("pods", self.engine, self.namespace), WITHIN_S, "the pod is there")
            wait_until(lambda: "node" in (self.row() or {}).get("reason", ""), WITHIN_S, "it waits for a node")
            if not self.followers:
                self.begin()
            full = f"0/1 nodes are available: round {number}."
            self.measure(
                "unschedulable",
                lambda: self.refuse_to_schedule(full),
                lambda it: full in str(it.get("status", {}).get("conditions")),
                lambda it: it and full in (it["reason"] or ""),
            )
            self.pods.kubernetes.bind(self.namespace, self.engine, self.node)
            wait_until(lambda: "are being created" in self.row()["reason"], WITHIN_S, "its container is being made")
            missing = f"MountVolume.SetUp failed in round {number}"
            self.measure(
                "an event",
                lambda: self.warn(missing),
                lambda it: missing in it.get("message", ""),
                lambda it: it and missing in (it["reason"] or ""),
                resource="events",
            )
            image = []
            self.measure(
                "image can't be pulled",
                lambda: image.append(self.kubelet.fault("image", mine)),
                lambda it: "ErrImagePull" in str(it.get("status")),
                lambda it: it and "could not pull image" in (it["reason"] or ""),
            )
            image[0].close()
            self.measure(
                "running",
                start.close,
                lambda it: "running" in str(it.get("status", {}).get("containerStatuses")),
                lambda it: it and it["state"] in RUNS,
            )
        self.control.wait_ready(TENANT)
        self.measure(
            "evicted",
            lambda: self.kubelet.evict(self.namespace, self.engine),
            lambda it: it.get("status", {}).get("phase") == "Failed",
            lambda it: it is None or it["state"] not in RUNS,
        )
        self.end()

    def row(self):
        return self.control.engine(TENANT, self.engine)

    def refuse_to_schedule(self, message):
        now = time.monotonic()
        change = {"status": {"conditions": [condition("PodScheduled", False, "Unschedulable", message)]}}
        self.pods.admin.patch("pods", self.engine, change, self.namespace, "status", kind="strategic-merge")
        return now

    def warn(self, message):
        pod, _ = self.kubelet.container(self.namespace, self.engine)
        self.noted.event(pod, "Warning", "FailedMount", message)

    def end(self):
        def gone():
            for it in self.control.engines(TENANT):
                if it["current"]:
                    with contextlib.suppress(pyhive.exc.OperationalError):
                        self.control.execute(f"STOP ENGINE {self.pool} '{it['engine']}' FORCE")
            return not self.control.engines(TENANT) and not self.pods.of(self.namespace)

        wait_until(gone, WITHIN_S, "no engine is left", 0.2)

    def close(self):
        self.over.set()
        for watch in self.watches:
            watch.close()
        for follower in self.followers.values():
            follower.thread.join(WITHIN_S)


def of(values):
    ordered = sorted(values)
    return " ".join(f"{it:7.0f}" for it in (ordered[0], ordered[len(ordered) // 2], ordered[-1]))


def main(rounds):
    with tempfile.TemporaryDirectory(prefix="enginehouse-news-", dir="/var/tmp") as name, contextlib.ExitStack() as stack:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        pods = Pods(folder / "kubernetes", scheduler=False)
        stack.callback(pods.close)
        pods.start()
        cluster = PodCluster(folder / "cluster", pods, candidates=("proxy-a", "proxy-b"))
        stack.callback(cluster.close)
        news = News(pods, cluster.start())
        stack.callback(news.close)
        news.round(0)
        for took in news.took.values():
            took.clear()
        before = os.getloadavg()[0]
        for number in range(1, rounds + 1):
            news.round(number)
        print(f"milliseconds: least, middle, most of {rounds}; load {before:.1f} before, {os.getloadavg()[0]:.1f} after")
        print(f"{'':24}{'the watch':26}{'SHOW ENGINES':26}{'DESCRIBE ENGINE':26}SHOW ENGINES after the watch")
        for kind, took in news.took.items():
            watch, show, describe = zip(*took, strict=True)
            after = [of_show - of_watch for of_watch, of_show in zip(watch, show, strict=True)]
            print(f"{kind:22}" + "   ".join(of(it) for it in (watch, show, describe, after)))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
