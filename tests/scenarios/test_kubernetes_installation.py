"""`deploy/kubernetes` as it is applied, with real pods: what it waits for, that it answers over TLS, and that all of its roles
can be restarted, and its certificate and users replaced, under their clients."""

import http.client
import re
import threading

import pytest
from thrift.transport.TTransport import TTransportException

from harness.certificates import Certificate
from harness.clients import open_pyhive, pyhive_session, refused_login, rows
from harness.fixtures import started
from harness.installation import ENGINES, NAMESPACE, RESTARTED_WITHIN_S, SERVICE, Installation, address
from harness.waiting import wait_until

WITHIN_S = 60
TENANT, POOL, UNIT = "t_1", "rp_1", "uc_1"
# Each with the volume that mounts it, or `None` if it is a variable.
SECRETS = {
    "enginehouse-keys-metadata-agent": "keys",
    "enginehouse-keys-master": "keys",
    "enginehouse-keys-proxy": "keys",
    "enginehouse-database": None,
    "enginehouse-tls": "tls",
    "enginehouse-users": "users",
}


@pytest.fixture(scope="module")
def installation(workspace):
    yield from started(Installation(workspace / "installation"))


@pytest.fixture(scope="module")
def running(installation):
    for secret in SECRETS:
        installation.make_secret(secret)
    installation.wait_runs()
    return installation


@pytest.fixture(scope="module")
def control(running):
    return running.control(running.ready("proxy")[0])


@pytest.fixture(scope="module")
def engine(control):
    control.execute(f"CREATE RESOURCE UNIT {UNIT} DRIVER_CPU 1, DRIVER_MEMORY '512M'")
    control.execute(f"CREATE RESOURCE POOL {POOL} NODE_LIST ('one', 'two'), UNIT_LIST ('{UNIT}')")
    control.execute(f"CREATE TENANT {TENANT} RESOURCE_POOL_LIST ('{POOL}'), USER_LIST ('ann')")
    return control.start(TENANT, POOL, UNIT)


def test_without_the_secrets_each_pod_waits_and_names_them(installation):
    def waits(role, words):
        pattern = re.compile(words)
        reasons = [installation.waits(it) for it in installation.pods(role)]
        return len(reasons) == 2 and all(pattern.search(it) for it in reasons)

    def wait_waits(role, secret):
        words = rf'secret "{secret}(-\w+)?" not found'
        if SECRETS[secret] is None:
            words = f"^CreateContainerConfigError: {words}"
        else:
            state = "PodInitializing" if role == "metadata-agent" else "ContainerCreating"
            words = f'^{state}: .*FailedMount: MountVolume.SetUp failed for volume "{SECRETS[secret]}" : {words}'
        wait_until(lambda: waits(role, words), WITHIN_S, f"{role} waits for {secret}: {installation.diagnosis(role)}")

    # A secret that is a file keeps all of a pod back; one that is a variable keeps its container.
    for role in ("proxy", "master", "metadata-agent"):
        wait_waits(role, f"enginehouse-keys-{role}")
    for role in ("proxy", "master", "metadata-agent"):
        installation.make_secret(f"enginehouse-keys-{role}")
    wait_waits("metadata-agent", "enginehouse-database")
    wait_waits("proxy", "enginehouse-tls")
    installation.make_secret("enginehouse-tls")
    wait_waits("proxy", "enginehouse-users")
    # Masters have neither.
    wait_until(lambda: all(installation.log(it) for it in installation.pods("master")), WITHIN_S, "masters run")
    assert not [it for it in installation.pods("proxy") if installation.log(it)]


def test_every_role_runs_and_only_masters_are_candidates(running, control):
    assert control.execute("SHOW TENANTS") == []
    wait_until(lambda: control.execute("SHOW MASTER"), WITHIN_S, "there is a master")
    elected = [pod["metadata"]["name"] for pod in running.pods() if "master lock won" in running.log(pod)]
    assert len(elected) == 1 and elected[0].startswith("enginehouse-master-"), elected
    for pod in running.pods("proxy") + running.pods("metadata-agent"):
        spec = pod["spec"]
        assert not [it for it in spec["volumes"] if "projected" in it], "no token"


def test_clients_log_in_over_tls_with_a_password_of_the_users_file(running, control):
    for pod in running.ready("proxy"):
        place = address(pod)
        with pyhive_session(place, **running.login()) as session:
            assert rows(session, "SHOW TENANTS") is not None
        for wrong in ({"password": "wrong"}, {"user": "eve"}):
            with pytest.raises(TTransportException, match="authentication failed"):
                open_pyhive(place, **(running.login() | wrong))
        assert "this login requires TLS" in refused_login(place)
        assert probe(place, "/livez") == probe(place, "/readyz") == 200
    for pod in running.ready("master"):
        assert "this proxy serves no clients" in refused_login(address(pod))
        assert probe(address(pod), "/readyz") == 200


def probe(place, path):
    connection = http.client.HTTPConnection(place, timeout=WITHIN_S)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


def test_a_replaced_secret_reaches_the_proxies_and_keeps_their_sessions(running, control, engine):
    pods = running.ready("proxy")
    sessions = [running.session(it, "ann") for it in pods]
    old = running.login()
    running.certificate = Certificate(running.folder, "renewed", f"DNS:{SERVICE}")
    running.replace_secret(running.of_certificate(running.certificate))
    running.replace_secret(running.of_users("bob"))

    def logs_in(pod, login):
        # Thrift fails with an error of its own when it closes what was refused.
        try:
            open_pyhive(address(pod), "bob", **login).close()
        except (TTransportException, AttributeError):
            return False
        return True

    for pod in pods:
        wait_until(lambda pod=pod: logs_in(pod, running.login()), WITHIN_S, "bob logs in with the new certificate", 0.5)
        assert not logs_in(pod, old)
    for session in sessions:
        assert rows(session, "SELECT 1 AS one") == [{"one": 1}]
        session.close()
    assert {it["metadata"]["uid"] for it in pods} == {it["metadata"]["uid"] for it in running.ready("proxy")}


def test_an_engine_is_a_pod_that_answers(running, control, engine):
    pods = running.engines()
    assert [it["metadata"]["name"] for it in pods] == [engine]
    assert pods[0]["spec"]["containers"][0]["image"] == "enginehouse"
    for pod in running.ready("proxy"):
        assert running.control(pod).execute("SELECT 40 + 2 AS answer", "ann") == [{"answer": 42}]


class Speaker(threading.Thread):
    def __init__(self, installation):
        super().__init__(daemon=True)
        self.installation = installation
        self.ended = threading.Event()
        self.made, self.failed = [], []
        self.start()

    def run(self):
        number = 0
        while not self.ended.is_set():
            unit = f"during_{number}"
            try:
                proxies = self.installation.ready("proxy")
                self.installation.control(proxies[number % len(proxies)]).execute(f"CREATE RESOURCE UNIT {unit}")
                self.made.append(unit)
            except Exception as error:
                self.failed.append((unit, repr(error)))
            number += 1
            self.ended.wait(0.2)

    def end(self):
        self.ended.set()
        self.join(WITHIN_S)
        assert not self.is_alive()


def test_a_rolling_restart_loses_no_engine_and_no_alteration(running, engine):
    before = {it["metadata"]["uid"] for it in running.engines()}
    leaving = running.ready("proxy")
    sessions = [running.session(it, "ann") for it in leaving]
    for session in sessions:
        assert rows(session, "SELECT 1 AS one") == [{"one": 1}]
    speaker = Speaker(running)
    old = {role: running.restart(role) for role in ("proxy", "master", "metadata-agent")}
    for role in ("master", "metadata-agent"):
        wait_until(
            lambda role=role: running.is_rolled_out(role) and running.gone(old[role]),
            RESTARTED_WITHIN_S,
            f"{role} is restarted",
            0.2,
        )
    wait_until(
        lambda: len([it for it in running.ready("proxy") if it["metadata"]["uid"] not in old["proxy"]]) == 2,
        RESTARTED_WITHIN_S,
        "there are new proxies",
        0.2,
    )
    drains = re.compile("draining; no new sessions")
    for pod in leaving:
        wait_until(lambda pod=pod: drains.search(running.log(pod)), WITHIN_S, "the old proxy drains", 0.2)
    for session in sessions:
        assert rows(session, "SELECT 2 AS two") == [{"two": 2}]
        session.close()
    wait_until(lambda: running.gone(old["proxy"]), RESTARTED_WITHIN_S, "the old proxies are gone", 0.2)
    running.wait_runs()
    speaker.end()
    control = running.control(running.ready("proxy")[0])
    assert {it["metadata"]["uid"] for it in running.engines()} == before
    assert [it["engine"] for it in control.wait_ready(TENANT)] == [engine]
    units = {it["unit"] for it in control.execute("SHOW RESOURCE UNITS")}
    assert set(speaker.made) <= units and len(speaker.made) > 5
    # A statement that a leaving proxy refused, or was cut from, was either not accepted or took effect; nothing is undecided.
    assert not [it for it in control.execute("SHOW ALTERATIONS LIMIT 500") if it["outcome"] == "undecided"]
    print(f"{len(speaker.made)} statements during the restarts, {len(speaker.failed)} of them refused: {speaker.failed[:3]}")


def doctor(installation):
    """The doctor's exit status in a master's pod, which reaches all that there is to look at but the database."""
    pod = installation.ready("master")[0]["metadata"]["name"]
    words = ["/usr/local/bin/enginehouse", "doctor", "--config", "/etc/enginehouse/enginehouse.toml"]
    return installation.kubelet.process(NAMESPACE, pod).run_inside(words, WITHIN_S)


def test_the_doctor_finds_nothing_and_then_a_right_that_was_taken_away(running, engine):
    admin = running.cluster.admin
    assert doctor(running) == 0
    binding = admin.get("rolebindings", "enginehouse-master", ENGINES)
    admin.delete("rolebindings", "enginehouse-master", ENGINES)
    restarts = [it["status"]["containerStatuses"][0]["restartCount"] for it in running.pods("master")]
    # The API server decides by what it has watched.
    try:
        wait_until(lambda: doctor(running) == 1, WITHIN_S, "the doctor finds that a right is missing", 0.2)
    finally:
        binding["metadata"] = {"name": "enginehouse-master"}
        admin.create("rolebindings", binding, ENGINES)
    wait_until(lambda: doctor(running) == 0, WITHIN_S, "the doctor finds nothing any more", 0.2)
    assert restarts == [it["status"]["containerStatuses"][0]["restartCount"] for it in running.pods("master")]


def test_nothing_in_the_logs_of_the_roles_is_an_error(running):
    for pod in running.pods():
        lines = [it for it in running.log(pod).splitlines() if " ERROR " in it or "panicked" in it]
        assert lines == [], pod["metadata"]["name"]


def test_the_engine_ends_with_its_tenant(running, engine):
    control = running.control(running.ready("proxy")[0])
    control.execute(f"DROP TENANT {TENANT} WAIT '1m'")
    wait_until(lambda: running.cluster.admin.items("pods", ENGINES) == [], WITHIN_S, "the engine's pod is gone")
    assert running.cluster.admin.items("pods", NAMESPACE)
