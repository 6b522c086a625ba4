"""Rows B12 to B19: tokens that an issuer has not signed, or not for this installation, and what they make a proxy do."""

import base64
import concurrent.futures
import contextlib
import hashlib
import hmac
import socket
import time

import pytest

from harness.attacked_gateway import AttackedGateway
from harness.clients import pyhive_session, split
from harness.forged_tokens import KeyServer, SigningKey, assemble
from harness.http_messages import THRIFT_TYPE
from harness.login_attempts import HTTP, PLAIN_THRIFT, REST, SASL, TRANSPORTS_AND_REST, log_in, over_http
from harness.thrift_messages import open_session

FAILED = "authentication failed"
ISSUER, AUDIENCE, KEY_ID = "https://issuer.example", "enginehouse", "key"
SECTION = f"""
[jwt]
issuer = "{ISSUER}"
audience = ["{AUDIENCE}"]
algorithms = ["RS256", "PS256", "ES256"]
as_password = true
leeway = "5s"
jwks_url = "{{url}}"
"""
# How often keys are read for tokens whose key is not known.
KEYS_EVERY_S = 10
UNKNOWN_KEYS, AT_ONCE = 200, 20


class Gateway(AttackedGateway):
    """Its users are those of an issuer."""

    def __init__(self, folder):
        folder.mkdir()
        self.key = SigningKey(folder)
        self.keys = KeyServer([self.key.jwk(KEY_ID, use="sig", alg="RS256")])
        super().__init__(folder, "jwt", SECTION.format(url=self.keys.url))
        self.sources = iter([f"127.0.{net}.{host}" for net in range(150, 160) for host in range(1, 250)])
        self.responses = {it: self.log_in(it, "eyA.eyA.eyA").received for it in TRANSPORTS_AND_REST}

    def close(self):
        super().close()
        self.keys.close()

    def token(self, header=None, claims=None, sign=None):
        """A valid token, but for what is given; a claim of `None` is left out."""
        header = {"alg": "RS256", "kid": KEY_ID} | (header or {})
        valid = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": int(time.time()) + 300}
        claims = {name: value for name, value in (valid | (claims or {})).items() if value is not None}
        return assemble(header, claims, sign or self.key.sign)

    def log_in(self, transport, token):
        """Each login comes from an address of its own, and names no user: failures are counted by both."""
        with self.connection() as connection:
            if transport in (SASL, PLAIN_THRIFT):
                return log_in(transport, connection, "", token)
            authorization = f"Authorization: Bearer {token}"
            if transport == REST:
                return over_http(connection, "GET /api/v1/tenants", authorization)
            thrift = f"Content-Type: {THRIFT_TYPE}"
            return over_http(connection, "POST /cliservice", authorization, thrift, body=open_session())

    def connection(self):
        return socket.create_connection(split(self.standalone.address), timeout=60, source_address=(next(self.sources), 0))

    def refuses(self, token, transports=(HTTP, SASL)):
        """All refusals are equal."""
        for transport in transports:
            answer = self.log_in(transport, token)
            assert not answer.accepted and FAILED in answer.text, (transport, token, answer)
            assert answer.received == self.responses[transport], (transport, token, answer)

    def accepts(self, token, transports=(HTTP,)):
        for transport in transports:
            answer = self.log_in(transport, token)
            assert answer.accepted, (transport, token, answer)


@pytest.fixture(scope="module")
def of_module(workspace):
    made = Gateway(workspace / "forged-tokens")
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def gateway(of_module):
    """Afterwards valid tokens are accepted, the gateway serves as before, and no log has a token."""
    yield of_module
    valid = of_module.token()
    of_module.accepts(valid, TRANSPORTS_AND_REST)
    of_module.check_health(pyhive_session(of_module.standalone.address, "alice", password=valid))
    assert valid not in of_module.standalone.logs.text(), "a token is in a log"


def test_b12_a_token_without_a_signature_proves_nothing(gateway):
    for algorithm in ("none", "None", "NONE", "", None):
        for signature in (b"", b"x"):
            gateway.refuses(gateway.token({"alg": algorithm}, sign=lambda _, it=signature: it), (HTTP,))
    gateway.refuses(gateway.token({"alg": "none"}, sign=lambda _: b"x"), TRANSPORTS_AND_REST)
    head, claims, _ = gateway.token().split(".")
    for token in (f"{head}.{claims}.", f"{head}.{claims}.AAAA"):
        gateway.refuses(token, (HTTP,))


def test_b13_a_public_key_is_no_shared_secret(gateway):
    modulus = gateway.key.jwk(KEY_ID)["n"]
    padded = modulus + "=" * (-len(modulus) % 4)
    secrets = (gateway.key.public.read_bytes(), modulus.encode(), base64.urlsafe_b64decode(padded), b"")
    for secret in secrets:
        for algorithm, digest in (("HS256", hashlib.sha256), ("HS384", hashlib.sha384), ("HS512", hashlib.sha512)):
            sign = lambda message, key=secret, of=digest: hmac.new(key, message, of).digest()  # noqa: E731
            gateway.refuses(gateway.token({"alg": algorithm}, sign=sign), (HTTP,))


def test_b14_a_token_of_another_time_audience_or_issuer_is_refused(gateway):
    now = int(time.time())
    gateway.accepts(gateway.token(claims={"exp": now - 2, "nbf": now + 2, "aud": ["other", AUDIENCE]}))
    for claims in (
        {"exp": now - 6},
        {"exp": 0},
        {"exp": -1},
        {"exp": None},
        {"nbf": now + 600},
        {"aud": "other"},
        {"aud": ["other", f"{AUDIENCE} "]},
        {"aud": []},
        {"aud": None},
        {"iss": "https://another.example"},
        {"iss": f"{ISSUER}/"},
        {"iss": None},
        {"sub": None},
        {"sub": "@admins"},
        {"sub": "alice\nadmin"},
    ):
        gateway.refuses(gateway.token(claims=claims), (HTTP,))
    # The user that is named is the token's.
    with gateway.connection() as connection:
        answer = log_in(SASL, connection, "admin", gateway.token())
    assert answer.received == gateway.responses[SASL], answer


def test_b15_a_time_as_text_is_none(gateway):
    later = int(time.time()) + 300
    for claims in (
        {"exp": str(later)},
        {"exp": "x"},
        {"exp": True},
        {"exp": [later]},
        {"exp": {"value": later}},
        {"nbf": "0"},
        {"nbf": ""},
    ):
        gateway.refuses(gateway.token(claims=claims))


def test_b16_a_header_names_no_key(gateway, folder):
    other = SigningKey(folder, "attacker")
    with contextlib.closing(KeyServer([other.jwk(KEY_ID)])) as server:
        for header in (
            {"jku": server.url},
            {"jwk": other.jwk(KEY_ID)},
            {"x5u": server.url},
            {"x5c": [base64.b64encode(other.public.read_bytes()).decode()]},
            {"kid": server.url},
            {"kid": "../../../../dev/null"},
        ):
            gateway.refuses(gateway.token(header, sign=other.sign))
        for header in ({"jku": server.url}, {"jwk": other.jwk(KEY_ID)}, {"x5u": server.url}):
            gateway.accepts(gateway.token(header))
        for header in ({"crit": ["exp"]}, {"crit": []}, {"b64": False}, {"enc": "A128GCM"}, {"zip": "DEF"}):
            gateway.refuses(gateway.token(header), (HTTP,))
        assert server.requests == 0


def test_b17_unknown_keys_are_looked_for_once_in_ten_seconds(gateway):
    before, began = gateway.keys.requests, time.monotonic()
    signed = gateway.key.sign(b"")
    tokens = [gateway.token({"kid": f"unknown-{it}"}, sign=lambda _: signed) for it in range(UNKNOWN_KEYS)]
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda token: gateway.refuses(token, (HTTP,)), tokens))
    took = time.monotonic() - began
    assert gateway.keys.requests - before <= 1 + took // KEYS_EVERY_S, took


def test_b18_a_long_token_is_refused(gateway):
    token = gateway.token(claims={"padding": "x" * ((17 << 10) * 3 // 4)})
    assert len(token) > 17 << 10
    gateway.refuses(token, (SASL, PLAIN_THRIFT))
    for transport in (HTTP, REST):
        answer = gateway.log_in(transport, token)
        assert not answer.accepted and answer.received.startswith(b"HTTP/1.1 431 "), answer
    gateway.accepts(gateway.token(claims={"padding": "x" * (10 << 10)}))


def test_b19_a_right_key_with_another_algorithm_is_refused(gateway):
    pss = ("-sha256", "-sigopt", "rsa_padding_mode:pss", "-sigopt", "rsa_pss_saltlen:-1")
    for algorithm, options in (
        # It is listed, but the key is for another one.
        ("PS256", pss),
        ("RS384", ("-sha384",)),
        ("RS512", ("-sha512",)),
        # The key is of another kind.
        ("ES256", ()),
        ("EdDSA", ()),
        # The signature is of another algorithm.
        ("RS256", pss),
        ("RS256", ("-sha512",)),
    ):
        gateway.refuses(gateway.token({"alg": algorithm}, sign=lambda it, by=options: gateway.key.sign(it, *by)), (HTTP,))
