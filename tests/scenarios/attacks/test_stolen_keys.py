"""Rows D8 to D10 and F1 to F7: what the holder of the key file of one role, or of what one engine has, can do with it."""

import base64
import contextlib
import itertools
import json
import socket
import threading
import tomllib
import uuid

import pytest
from kazoo.exceptions import NoAuthError

from harness.attacked import password_of
from harness.captured_engine import captured_engine
from harness.clients import rows, split
from harness.components import AGENT, MECHANISM, Component, NotAccepted, component, proof, signing_key, signing_key_of
from harness.login_attempts import TRANSPORTS_AND_REST, log_in, over_sasl
from harness.role_keys import secrets_of
from harness.stolen_keys import AGENT_REFUSES, ENGINE_REFUSES, ROOT, TIMEOUT_S, Stolen, refusal
from harness.thrift_messages import BAD, COMPLETE, OK, START, sasl
from harness.transports import read_sasl
from harness.waiting import wait_until

LURED_WITHIN_S = 60


@pytest.fixture(scope="module")
def stolen(shared_target):
    return Stolen(shared_target)


def test_d9_what_an_engine_has_calls_no_agent(target, stolen):
    """Its own file has a password of ZooKeeper, and public keys. With those it cannot sign."""
    launched = stolen.launched("sales")
    texts = [it for generation in launched["callers"]["generations"] for it in generation.values() if isinstance(it, str)]
    assert launched["credential"]["password"] and len(texts) == 2
    for address, audience, expected in (
        (stolen.address, AGENT, AGENT_REFUSES),
        (stolen.registration("finance")["address"], stolen.audience("finance"), ENGINE_REFUSES),
    ):
        for role in ("proxy", "master", "metadata-agent", "", "engine"):
            made_up = signing_key(base64.b64encode(uuid.uuid4().bytes * 2))
            assert refusal(address, lambda it, a=audience, r=role, k=made_up: proof(k, it, a, r)) == expected, role
        for password in ("", launched["credential"]["password"], *texts):
            for user in ("proxy", "master"):
                assert plain(address, user, password) == expected

    calls_no_proxy(target, stolen, launched["credential"]["password"])


def calls_no_proxy(target, stolen, password):
    """By the mechanism of roles, and with the password of the engine under its own name and a proxy's."""
    with target.tls("127.0.109.1") as connection:
        answer = over_sasl(connection, sasl(START, MECHANISM))
    assert not answer.accepted and f'SASL mechanism "{MECHANISM.decode()}" is not supported' in answer.text, answer
    logins = itertools.product(TRANSPORTS_AND_REST, (f"engine-{stolen.names['sales']}", "proxy"))
    for number, (transport, user) in enumerate(logins, start=2):
        with target.tls(f"127.0.109.{number}") as connection:
            answer = log_in(transport, connection, user, password)
        assert not answer.accepted and "authentication failed" in answer.text, (transport, user, answer)


def plain(address, user, password):
    with socket.create_connection(split(address), timeout=TIMEOUT_S) as connection:
        connection.sendall(sasl(START, b"PLAIN") + sasl(COMPLETE, f"ann\0{user}\0{password}".encode()))
        status, text = read_sasl(connection)
        assert status == BAD
        return text.decode()


def test_d10_a_proof_that_was_sent_to_one_server_is_refused_by_another(target, stolen):
    """An engine that makes a proxy connect to it passes on what another server asks, and the proxy's answer."""
    victim = stolen.registration("finance")["address"]
    key = signing_key_of(stolen.proxy)
    for lured_to, address, expected in (
        (stolen.audience("sales"), victim, ENGINE_REFUSES),
        (stolen.audience("sales"), stolen.address, AGENT_REFUSES),
        (f"engine:{stolen.names['finance']}:another-uid", victim, ENGINE_REFUSES),
        (AGENT, victim, ENGINE_REFUSES),
    ):
        # What the proxy signs for the server that it was lured to, over the challenge of the victim.
        assert refusal(address, lambda it, lure=lured_to: proof(key, it, lure, "proxy", user="bob")) == expected
    # A proof of the same server, from an earlier connection.
    seen = []
    with Component(victim, lambda it: seen.append(proof(key, it, stolen.audience("finance"), "proxy")) or seen[0]):
        pass
    assert refusal(victim, lambda _: seen[0]) == ENGINE_REFUSES


def test_f1_the_file_of_a_proxy_is_no_login_of_a_master_at_zookeeper(target, stolen):
    proxys = secrets_of(stolen.proxy).values()
    masters = {password for _, password in secrets_of(stolen.master).items()}
    assert not masters & set(proxys)
    engine = stolen.names["finance"]
    for user in ("master", "proxy", "agent"):
        # Under every name, with the password that the file has.
        with stolen.login(user, stolen.proxy) as client:
            for attempt in (
                lambda it: it.create(f"{ROOT}/lock/master/x-lock-0000000000", b"", ephemeral=True),
                lambda it: it.create(f"{ROOT}/lock/alter", b""),
                lambda it: it.create(f"{ROOT}/engines/x", b"{}"),
                lambda it: it.create(f"{ROOT}/drains/{engine}", b"{}"),
                lambda it: it.create(f"{ROOT}/engines/{engine}/x", b"{}"),
                lambda it: it.set(f"{ROOT}/engines/{engine}", b"{}"),
                lambda it: it.delete(f"{ROOT}/engines/{engine}/live"),
                lambda it: it.create(f"{ROOT}/agents/x", b"{}"),
                lambda it: it.set(f"{ROOT}/bell", b""),
            ):
                with pytest.raises(NoAuthError):
                    attempt(client)


def test_f2_the_key_of_a_proxy_makes_no_call_of_a_master(target, stolen):
    with component(stolen.address, AGENT, stolen.proxy) as connection:
        master = connection.outcome("GetMaster")
        assert master["epoch"] >= 1
        for method, fields in {
            "RaiseEpoch": {"read": master["epoch"], "holder": "thief"},
            "Finish": {"epoch": master["epoch"], "id": "a-1", "plan": 1},
            "Observed": {"epoch": master["epoch"], "report": "{}"},
            "Abort": {"abort": "{}"},
            "Scale": {"epoch": master["epoch"], "request": "{}"},
            "Ledger": {"epoch": master["epoch"], "changes": "[]"},
            "NewIncarnations": {"epoch": master["epoch"], "renewals": "[]"},
        }.items():
            error = connection.outcome(method, **fields)
            assert error["message"] == f"only a master may call {method}", error
        assert connection.outcome("GetMaster")["epoch"] == master["epoch"]
    for claimed in ("master", "metadata-agent"):
        with pytest.raises(NotAccepted, match="accepts only proxies and masters"):
            component(stolen.address, AGENT, stolen.proxy, role=claimed)


def test_f3_the_file_of_a_proxy_has_no_key_that_marks_pods(target, stolen):
    files = {"proxy": stolen.proxy, "master": stolen.master}
    names = {role: {name for name, _ in secrets_of(path)} for role, path in files.items()}
    assert names == {"proxy": {"signing", "zookeeper", "cookie"}, "master": {"signing", "zookeeper", "pods", "engines"}}


def test_f4_no_file_of_a_proxy_or_master_has_a_credential_of_the_database(target, stolen):
    for path in (stolen.proxy, stolen.master):
        assert set(tomllib.loads(path.read_text())) == {"role", "cluster", "use", "generation"}
        assert "sqlite" not in path.read_text() and "postgres" not in path.read_text()


def test_f5_the_key_of_a_proxy_reads_no_secret_property(target, stolen):
    secret = "canary-f5-7f3a"
    with target.session("admin") as admin:
        rows(admin, f"CREATE RESOURCE UNIT f5 PROPERTIES ('spark.hadoop.fs.s3a.secret.key'='{secret}')")
    try:
        with component(stolen.address, AGENT, stolen.proxy) as connection:
            assert connection.outcome("GetSnapshot")["message"] == "only a master may call GetSnapshot"
            masked = json.dumps(connection.outcome("GetProxySnapshot"))
            assert '"f5"' in masked and "******" in masked and secret not in masked
        with component(stolen.address, AGENT, stolen.master) as connection:
            assert secret in json.dumps(connection.outcome("GetSnapshot")), "a master renders it"
    finally:
        with target.session("admin") as admin:
            rows(admin, "DROP RESOURCE UNIT f5")


def test_f6_the_file_of_a_metadata_agent_calls_no_agent(target, stolen):
    assert {name for name, _ in secrets_of(stolen.agent)} == {"zookeeper", "fingerprint", "seal", "tls"}
    seeds = {name: key for (name, _), key in secrets_of(stolen.agent).items()}
    for address, audience, expected in (
        (stolen.address, AGENT, AGENT_REFUSES),
        (stolen.registration("sales")["address"], stolen.audience("sales"), ENGINE_REFUSES),
    ):
        for seed in seeds.values():
            key = signing_key(seed)
            for role in ("proxy", "master", "metadata-agent"):
                assert refusal(address, lambda it, a=audience, r=role, k=key: proof(k, it, a, r)) == expected


def test_f7_the_file_of_a_metadata_agent_is_no_key_of_a_proxy(target, stolen):
    """At ZooKeeper under a proxy's name and under its own, and at agents as a proxy that acts for a user."""
    proxys = secrets_of(stolen.proxy)
    secrets = secrets_of(stolen.agent)
    assert not {"signing", "cookie"} & {name for name, _ in secrets} and not set(secrets.values()) & set(proxys.values())
    engine = stolen.names["finance"]
    for user in ("proxy", "master"):
        with stolen.login(user, stolen.agent) as client:
            for path in (ROOT, f"{ROOT}/engines/{engine}", f"{ROOT}/engines/{engine}/live", f"{ROOT}/agents", f"{ROOT}/bell"):
                with pytest.raises(NoAuthError):
                    client.get(path)
    with stolen.login("agent", stolen.agent) as client:
        for attempt in (
            lambda it: it.create(f"{ROOT}/lock/master/x-lock-0000000000", b"", ephemeral=True),
            lambda it: it.create(f"{ROOT}/engines/x", b"{}"),
            lambda it: it.create(f"{ROOT}/drains/{engine}", b"{}"),
            lambda it: it.set(f"{ROOT}/engines/{engine}", b"{}"),
            lambda it: it.delete(f"{ROOT}/engines/{engine}/live"),
        ):
            with pytest.raises(NoAuthError):
                attempt(client)
    for address, audience, expected in (
        (stolen.address, AGENT, AGENT_REFUSES),
        (stolen.registration("sales")["address"], stolen.audience("sales"), ENGINE_REFUSES),
    ):
        for seed in secrets.values():
            assert plain(address, "proxy", seed) == expected
            key = signing_key(seed)
            assert refusal(address, lambda it, a=audience, k=key: proof(k, it, a, "proxy", user="bob")) == expected


class ThirdParty:
    """Where an engine sends proxies: it asks each of them for a proof, keeps what it hears, and refuses."""

    def __init__(self):
        self.heard = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self.listen)
        self.thread.start()

    def listen(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                with connection, contextlib.suppress(OSError):
                    connection.settimeout(TIMEOUT_S)
                    heard = [read_sasl(connection)]
                    connection.sendall(sasl(OK, b"\x01" * 32))
                    heard.append(read_sasl(connection))
                    self.heard.append(heard)
                    connection.sendall(sasl(BAD, b"no"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join(TIMEOUT_S)


def test_d8_a_third_party_that_a_proxy_is_sent_to_learns_no_key(target, stolen):
    """A user's statement makes the proxy connect to it. What goes over the wire is the mechanism and a signature, which is for
    that engine only; the statement runs at another engine of the tenant."""
    secret = "canary-d8-7f3a"
    with ThirdParty() as third, captured_engine(target, stolen, "d8", "carol") as engine, engine.login() as thief:
        engine.register(thief, engine.registration(third.address))

        def is_lured():
            with target.session("carol", tenant="d8") as session:
                assert rows(session, f"SELECT '{secret}' AS it") == [{"it": secret}]
            return any(b"proxy\0carol" in it for _, (_, it) in third.heard)

        wait_until(is_lured, LURED_WITHIN_S, "a proxy connects to the third party", 0.1)
        heard = list(third.heard)
    keys = [key for path in (stolen.proxy, stolen.master) for key in secrets_of(path).values()]
    for start, (status, proven) in heard:
        assert (start, status) == ((START, MECHANISM), COMPLETE)
        assert not any(it.encode() in proven for it in (secret, password_of("carol"), *keys))
        # At another engine, and at a metadata agent.
        for address, expected in ((stolen.registration("finance")["address"], ENGINE_REFUSES), (stolen.address, AGENT_REFUSES)):
            assert refusal(address, lambda _, it=proven: it) == expected
