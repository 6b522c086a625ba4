"""The relay that other scenarios put before the API server, against the real one: a fault that isn't injected proves nothing,
and what no fault is about must pass as if there were no relay."""

import contextlib
import queue
import threading

import pytest

from harness.api_relay import ApiCall, ApiRelay, api_calls, watch_events
from harness.control_plane import Kubernetes
from harness.fixtures import started
from harness.kubernetes_client import ApiError, Unreachable, path_of
from harness.waiting import wait_until

WITHIN_S = 60
IMPATIENT_S = 0.5


@pytest.fixture(scope="module")
def kubernetes(workspace):
    yield from started(Kubernetes(workspace / "kubernetes-with-relay", scheduler=False))


@pytest.fixture
def relay(kubernetes):
    with ApiRelay(kubernetes) as relay:
        yield relay


@pytest.fixture
def client(relay):
    return relay.client()


@pytest.fixture
def namespace(kubernetes, request):
    return kubernetes.namespace(f"relay-{request.node.name.removeprefix('test_').replace('_', '-')[:50].rstrip('-')}")


def config_map(name, **data):
    return {"metadata": {"name": name}, "data": data}


def make(client, namespace, *names):
    return [client.create("configmaps", config_map(name), namespace) for name in names]


def names(client, namespace):
    return [
        it["metadata"]["name"] for it in client.items("configmaps", namespace) if it["metadata"]["name"] != "kube-root-ca.crt"
    ]


class Later:
    def __init__(self, call):
        self.expected = queue.Queue()
        threading.Thread(target=self.run, args=(call,), daemon=True).start()

    def run(self, call):
        try:
            self.expected.put((call(), None))
        except (ApiError, Unreachable) as error:
            self.expected.put((None, error))

    def result(self):
        value, error = self.expected.get(timeout=WITHIN_S)
        if error is not None:
            raise error
        return value


@contextlib.contextmanager
def watching(client, namespace):
    version = client.list("configmaps", namespace)["metadata"]["resourceVersion"]
    watch = client.watch("configmaps", namespace, resourceVersion=version)
    try:
        yield (
            (kind, it["metadata"].get("name"), int(it["metadata"]["resourceVersion"]))
            for kind, it in watch
            if kind != "BOOKMARK"
        )
    finally:
        watch.close()


@pytest.mark.quick
@pytest.mark.parametrize(
    ("method", "target", "expected"),
    [
        ("GET", "/api/v1/namespaces/a/pods", ("list", "pods", "a", None, None)),
        ("GET", "/api/v1/pods?labelSelector=x%3Dy", ("list", "pods", None, None, None)),
        ("GET", "/api/v1/pods?watch=true&resourceVersion=5", ("watch", "pods", None, None, None)),
        ("GET", "/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Db", ("list", "pods", "a", "b", None)),
        ("GET", "/api/v1/namespaces/a/pods/b", ("get", "pods", "a", "b", None)),
        ("GET", "/api/v1/namespaces/a/pods/b/log?follow=true", ("get", "pods", "a", "b", "log")),
        ("POST", "/api/v1/namespaces/a/pods/b/binding", ("create", "pods", "a", "b", "binding")),
        ("POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/a/roles", ("create", "roles", "a", None, None)),
        ("PUT", "/apis/apps/v1/namespaces/a/deployments/b", ("update", "deployments", "a", "b", None)),
        ("PATCH", "/api/v1/namespaces/a/pods/b/status", ("patch", "pods", "a", "b", "status")),
        ("DELETE", "/api/v1/namespaces/a", ("delete", "namespaces", None, "a", None)),
        ("DELETE", "/api/v1/namespaces/a/pods", ("deletecollection", "pods", "a", None, None)),
        ("PUT", "/api/v1/namespaces/a/finalize", ("update", "namespaces", None, "a", "finalize")),
        ("GET", "/readyz", ("get", None, None, None, None)),
        ("GET", "/apis/apps/v1", ("get", None, None, None, None)),
    ],
)
def test_a_request_is_read_as_the_api_server_reads_it(method, target, expected):
    call = ApiCall(method, target)
    assert (call.verb, call.resource, call.namespace, call.name, call.subresource) == expected
    assert api_calls(expected[0], resource=expected[1], namespace=expected[2], name=expected[3], subresource=expected[4])(call)
    assert not api_calls("another")(call) and not api_calls(resource="others")(call)


def test_what_no_fault_is_about_passes_as_it_is(kubernetes, relay, client, namespace):
    large = "x" * 900_000
    made = client.create("configmaps", config_map("large", text=large), namespace)
    assert kubernetes.admin.get("configmaps", "large", namespace) == made
    assert client.get("configmaps", "large", namespace)["data"]["text"] == large
    patched = client.patch("configmaps", "large", {"data": {"text": None, "short": "é"}}, namespace)
    assert patched["data"] == {"short": "é"}
    with pytest.raises(ApiError) as refusal:
        client.create("configmaps", config_map("wrong") | {"dota": {}}, namespace)
    assert refusal.value.code == 400 and 'unknown field "dota"' in refusal.value.message
    reader = kubernetes.service_account(namespace, "reader", [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}])
    own = kubernetes.client_of(reader, address=relay.address)
    assert own.items("pods", namespace) == []
    with pytest.raises(ApiError) as refusal:
        own.items("configmaps", namespace)
    assert refusal.value.code == 403
    with watching(client, namespace) as events:
        make(kubernetes.admin, namespace, "seen")
        assert next(events)[:2] == ("ADDED", "seen")
        kubernetes.admin.delete("configmaps", "seen", namespace)
        assert next(events)[:2] == ("DELETED", "seen")
    assert client.request("GET", "/readyz") == "ok"
    assert relay.requests["create", "configmaps"] == 2 and relay.requests["watch", "configmaps"] == 1


def test_errors_are_injected_by_count_and_match(relay, client, namespace):
    with relay.fault("error", api_calls("create", resource="configmaps", namespace=namespace), times=2, skip=1) as fault:
        assert names(client, namespace) == []
        make(client, namespace, "first")
        for _ in range(2):
            with pytest.raises(ApiError) as refusal:
                make(client, namespace, "second")
            assert (refusal.value.code, refusal.value.reason) == (500, "InternalError")
        make(client, namespace, "second")
        assert (fault.injected, fault.seen) == (2, 3)
    assert names(client, namespace) == ["first", "second"]
    with relay.fault("error", api_calls("get"), times=None, every=2, code=503) as fault:
        codes = []
        for _ in range(4):
            try:
                client.get("configmaps", "first", namespace)
                codes.append(200)
            except ApiError as error:
                codes.append(error.code)
        assert codes == [503, 200, 503, 200]
    assert client.get("configmaps", "first", namespace) and fault.injected == 2


def test_an_error_after_the_server_did_it_leaves_it_done(kubernetes, relay, client, namespace):
    for kind in ("error", "throttle", "hang_up"):
        with relay.fault(kind, api_calls("create"), after=True), pytest.raises((ApiError, Unreachable)):
            make(client, namespace, kind.replace("_", "-"))
        with relay.fault(kind, api_calls("create")), pytest.raises((ApiError, Unreachable)):
            make(client, namespace, "never")
    assert names(kubernetes.admin, namespace) == ["error", "hang-up", "throttle"]
    assert names(client, namespace) == ["error", "hang-up", "throttle"]


def test_a_request_that_is_never_answered(kubernetes, relay, client, namespace):
    with relay.fault("silence", api_calls("create"), times=2, after=True) as fault:
        with pytest.raises(Unreachable):
            client.request("POST", path_of("configmaps", namespace), config_map("one"), within_s=IMPATIENT_S)
        wait_until(lambda: fault.left == 1, WITHIN_S, "the relay has seen that the client gave up")
        patient = Later(lambda: make(client, namespace, "two"))
        wait_until(lambda: fault.injected == 2, WITHIN_S, "the second is silent too")
        assert names(kubernetes.admin, namespace) == ["one", "two"]
    with pytest.raises(Unreachable):
        patient.result()
    with relay.fault("silence", api_calls("watch")) as fault:
        watch = Later(lambda: client.watch("configmaps", namespace))
        wait_until(lambda: fault.injected == 1, WITHIN_S, "the watch is not answered")
    with pytest.raises(Unreachable):
        watch.result()


def test_what_is_held_goes_on_when_it_may(kubernetes, relay, client, namespace):
    with relay.fault("hold", api_calls("create"), times=None) as fault:
        call = Later(lambda: make(client, namespace, "held"))
        wait_until(lambda: fault.injected == 1, WITHIN_S, "it is held")
        assert names(kubernetes.admin, namespace) == [] and call.expected.empty()
    assert call.result()[0]["metadata"]["name"] == "held"
    with relay.fault("hold", api_calls("delete"), after=True) as fault:
        call = Later(lambda: client.delete("configmaps", "held", namespace))
        wait_until(lambda: names(kubernetes.admin, namespace) == [], WITHIN_S, "the server did it")
        assert call.expected.empty()
    assert call.result()["status"] == "Success"


def test_a_watch_continues_from_a_stale_list(kubernetes, relay, client, namespace):
    make(client, namespace, "old")
    version = relay.version()
    make(client, namespace, "new")
    client.delete("configmaps", "old", namespace)
    with relay.fault("stale", api_calls("list", resource="configmaps"), version=version, times=2) as fault:
        listed = client.list("configmaps", namespace)
        assert listed["metadata"]["resourceVersion"] == version
        assert "old" in [it["metadata"]["name"] for it in listed["items"]]
        # From a cache it is asked as well as from the database.
        assert names(kubernetes.client(address=relay.address), namespace) == ["old"]
        assert fault.injected == 2
        assert names(client, namespace) == ["new"]
    watch = client.watch("configmaps", namespace, resourceVersion=version)
    events = ((kind, it["metadata"]["name"]) for kind, it in watch if kind != "BOOKMARK")
    assert [next(events), next(events)] == [("ADDED", "new"), ("DELETED", "old")]
    watch.close()


def test_events_that_are_dropped_and_repeated(kubernetes, relay, client, namespace):
    admin = kubernetes.admin
    with watching(client, namespace) as events:
        with relay.fault("drop", api_calls("watch", namespace=namespace), event=watch_events("ADDED"), times=1) as fault:
            make(admin, namespace, "dropped", "sent")
            assert next(events)[:2] == ("ADDED", "sent")
            assert fault.injected == 1
        with relay.fault("repeat", api_calls("watch", namespace=namespace), copies=2) as fault:
            make(admin, namespace, "thrice", "once")
            assert [next(events)[1] for _ in range(4)] == ["thrice", "thrice", "thrice", "once"]
        with relay.fault("repeat", api_calls("watch", namespace=namespace), event=watch_events(name="late"), late=True):
            make(admin, namespace, "late", "behind", "last")
            expected = [next(events) for _ in range(4)]
            assert [it[1] for it in expected] == ["late", "behind", "late", "last"]
            assert expected[2][2] == expected[0][2] < expected[1][2]
        admin.delete("configmaps", "dropped", namespace)
        assert next(events)[:2] == ("DELETED", "dropped")


def test_a_watch_is_cut_in_the_middle_of_an_event(kubernetes, relay, client, namespace):
    with watching(client, namespace) as events:
        make(kubernetes.admin, namespace, "whole")
        last = next(events)
        with relay.fault("tear", api_calls("watch")), pytest.raises(Unreachable) as broken:
            make(kubernetes.admin, namespace, "torn")
            next(events)
        assert "IncompleteRead" in str(broken.value)
    watch = client.watch("configmaps", namespace, resourceVersion=last[2])
    assert next((kind, it["metadata"]["name"]) for kind, it in watch) == ("ADDED", "torn")
    watch.close()
