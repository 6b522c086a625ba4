"""Rows B26 to B28: the cookie of HTTP clients, forged, expired, of another generation of keys, sent by a page of another site,
and sent to the REST API.

No test waits for 15 min: a cookie with another expiry is signed here, with the key in the file of the proxy.
"""

import base64
import contextlib
import hashlib
import hmac
import json
import time

import pytest
from impala_thrift_gen.TCLIService import ttypes

from harness.attacked import basic, password_of
from harness.http_messages import THRIFT_TYPE
from harness.login_attempts import over_http
from harness.processes import REPOSITORY
from harness.role_keys import secrets_of
from harness.thrift_messages import call, decode, execute, handle, open_session

COOKIE = "hive.server2.auth"
FAILED = "authentication failed\n"
NO_CREDENTIALS = "the request has no Basic credentials\n"
NO_TOKENS = "bearer tokens are not accepted\nHint: Log in with a user name and a password.\n"
FORGED_UNIT = "forged"
FORGERY = f"CREATE RESOURCE UNIT {FORGED_UNIT} DRIVER_CPU 1, DRIVER_MEMORY '512M'"
# The longest cookie that is read.
MAX_COOKIE_BYTES = 3 * 1024


class LoggedIn:
    """A client of HTTP that has logged in: its cookie, and its session."""

    def __init__(self, target, user):
        self.target = target
        headers = {"Content-Type": THRIFT_TYPE}
        status, headers, body = target.http("POST", "/cliservice", open_session(), user, headers)
        assert status == 200, body
        name, _, value = headers["Set-Cookie"].partition(";")[0].partition("=")
        assert name == COOKIE, headers
        self.cookie = value
        self.fields, self.signature = value.split(".")
        self.session = decode(body).response.sessionHandle

    def statement(self, text):
        return execute(self.session, text)

    def with_field(self, position, value):
        """The cookie with another field and the same signature. Fields: version, generation, expiry, method, user, groups."""
        return f"{self.changed(position, value)}.{self.signature}"

    def signed_with_field(self, position, value):
        """The same, signed with the key of the proxy."""
        fields = self.changed(position, value)
        return f"{fields}.{signature_of(self.target, fields)}"

    def changed(self, position, value):
        fields = decoded(self.fields).split(b"\0")
        fields[position : position + 1] = value(fields[position])
        return encoded(b"\0".join(fields))

    def is_served(self):
        """With its own cookie a statement of its own session runs."""
        response = post(self.target, self.statement("SHOW TENANTS"), self.cookie)
        return response[0] == 200 and decode(response[1]).succeeded

    def close(self):
        post(self.target, call("CloseSession", handle(self.session)), self.cookie)


def signature_of(target, fields):
    key = base64.b64decode(secrets_of(target.standalone.data / "keys/proxy.key")["cookie", 1]).hex()
    return encoded(hmac.digest(key.encode(), fields.encode(), hashlib.sha256))


def encoded(data):
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def decoded(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def post(target, body, cookie=None, path="/cliservice", **headers):
    """Status and body of the response to a POST without credentials, but for these headers."""
    headers = {"Content-Type": THRIFT_TYPE} | {name.replace("_", "-"): value for name, value in headers.items()}
    if cookie is not None:
        headers["Cookie"] = f"{COOKIE}={cookie}"
    headers = {name: value for name, value in headers.items() if value is not None}
    status, received, text = target.http("POST", path, body, headers=headers)
    assert status == 200 or "Set-Cookie" not in received, "a refused request is answered with a cookie"
    return status, text


@pytest.fixture
def logged_in(target):
    """A client of this user; its session is closed after the test."""
    with contextlib.ExitStack() as stack:

        def execute(user):
            client = LoggedIn(target, user)
            stack.callback(client.close)
            return client

        yield execute


def assert_nothing_was_forged(target):
    units = {row["unit"] for row in target.execute("SHOW RESOURCE UNITS")}
    assert FORGED_UNIT not in units and units, units


def test_b26_a_forged_cookie_is_refused(target, logged_in):
    """Each attempt is a statement in the admin's own session: a cookie that counts as the admin's would run it."""
    admin, alice = logged_in("admin"), logged_in("alice")
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    # The last character has two bits that belong to no byte.
    respelled = f"{admin.signature[:-1]}{alphabet[alphabet.index(admin.signature[-1]) ^ 1]}"
    assert decoded(respelled) == decoded(admin.signature)
    # Only what is changed makes the signed ones invalid.
    assert signature_of(target, admin.fields) == admin.signature
    soon = admin.signed_with_field(2, lambda _: [b"%d" % (time.time() * 1000 + 60_000)])
    assert post(target, admin.statement("SHOW TENANTS"), soon)[0] == 200
    forged = {
        "empty": "",
        "a point": ".",
        "a signature of zeros": f"{admin.fields}.{encoded(bytes(32))}",
        "no signature": admin.fields,
        "an empty signature": f"{admin.fields}.",
        "a signature alone": f".{admin.signature}",
        "cut by one character": admin.cookie[:-1],
        "half a signature": f"{admin.fields}.{admin.signature[:21]}",
        "half of the fields": f"{admin.fields[: len(admin.fields) // 2]}.{admin.signature}",
        "a longer signature": f"{admin.cookie}AA",
        "a third part": f"{admin.cookie}.{admin.signature}",
        "more fields": f"{admin.fields}AA.{admin.signature}",
        "another spelling of the signature": f"{admin.fields}.{respelled}",
        "padding": f"{admin.cookie}=",
        "capitals": admin.cookie.upper(),
        "too long": f"{admin.cookie}{'A' * MAX_COOKIE_BYTES}",
        "the admin's fields, signed for alice": f"{admin.fields}.{alice.signature}",
        "alice's fields, signed for the admin": f"{alice.fields}.{admin.signature}",
        "another version": alice.with_field(0, lambda _: [b"0"]),
        "another generation": alice.with_field(1, lambda _: [b"2"]),
        "a later expiry": alice.with_field(2, lambda expiry: [b"%d" % (int(expiry) + 10**9)]),
        "no expiry": alice.with_field(2, lambda _: []),
        "method none": alice.with_field(3, lambda _: [b"none"]),
        "the name of the admin": alice.with_field(4, lambda _: [b"admin"]),
        "one more group": alice.with_field(5, lambda group: [group, b"ops"]),
        "no group": alice.with_field(5, lambda _: []),
        # Signed as by a proxy.
        "expired": admin.signed_with_field(2, lambda _: [b"%d" % (time.time() * 1000 - 1)]),
        "expired long ago": admin.signed_with_field(2, lambda _: [b"0"]),
        "of a generation that no proxy has any more": admin.signed_with_field(1, lambda _: [b"0"]),
        "of a generation that no proxy has yet": admin.signed_with_field(1, lambda _: [b"2"]),
        "by a method that is not enabled": admin.signed_with_field(3, lambda _: [b"ldap"]),
        "a forged one before the genuine one": f"x; {COOKIE}={admin.cookie}",
    }
    for variant, cookie in forged.items():
        assert post(target, admin.statement(FORGERY), cookie) == (401, FAILED.encode()), variant
        assert post(target, open_session(), cookie) == (401, FAILED.encode()), variant
    misused = {
        "under another name": ({"Cookie": f"{COOKIE.upper()}={admin.cookie}"}, "/cliservice", 401, NO_CREDENTIALS),
        "beside broken credentials": ({"Authorization": "Basic ?"}, "/cliservice", 401, NO_CREDENTIALS),
        "beside the scheme of a token": ({"Authorization": f"Bearer {admin.cookie}"}, "/cliservice", 401, NO_TOKENS),
        "for another user": ({}, "/cliservice?doAs=alice", 401, "a request on behalf of another user needs credentials\n"),
    }
    for variant, (headers, path, status, text) in misused.items():
        headers = {"Cookie": f"{COOKIE}={admin.cookie}"} | headers
        assert post(target, admin.statement(FORGERY), path=path, **headers) == (status, text.encode()), variant
    # The genuine cookie of another user, who has no such session.
    status, body = post(target, admin.statement(FORGERY), alice.cookie)
    refused = decode(body).response.status
    assert (status, refused.statusCode) == (200, ttypes.TStatusCode.ERROR_STATUS), refused
    assert refused.errorMessage.startswith("session does not exist\n"), refused
    with target.tcp("127.0.126.1") as connection:
        headers = f"Content-Type: {THRIFT_TYPE}", f"Cookie: {COOKIE}={admin.cookie}"
        answer = over_http(connection, "POST /cliservice", *headers, body=admin.statement(FORGERY))
    assert answer.received.startswith(b"HTTP/1.1 426 "), answer
    assert answer.text == "this login requires TLS: add ssl=true\n", answer
    assert_nothing_was_forged(target)
    assert admin.is_served() and alice.is_served()


def test_b27_a_form_of_another_site_is_sent_without_authority(target, logged_in):
    """The browser adds the admin's cookie. A form has one of the first three content types, and every page sends its origin."""
    admin = logged_in("admin")
    content_types = [
        "application/x-www-form-urlencoded",
        "text/plain",
        "multipart/form-data; boundary=x",
        None,
        "",
        "application/json",
        "application/octet-stream",
        "application/x-thrift; boundary=x",
        "text/plain; application/x-thrift",
        "text/plain, application/x-thrift",
    ]
    for content_type in content_types:
        for path in ("/cliservice", "/", "/cliservice/"):
            refused = post(target, admin.statement(FORGERY), admin.cookie, path, Content_Type=content_type)
            assert refused == (401, NO_CREDENTIALS.encode()), (content_type, path)
    from_page = "requests of web pages are not served: the request has an Origin header\n"
    for origin in ("https://example.com", f"https://{target.address}", "null"):
        for content_type in ("text/plain", THRIFT_TYPE):
            refused = post(target, admin.statement(FORGERY), admin.cookie, Content_Type=content_type, Origin=origin)
            assert refused == (403, from_page.encode()), (content_type, origin)
    assert_nothing_was_forged(target)
    assert admin.is_served()


def test_b28_the_cookie_is_no_credential_of_the_rest_api(target, logged_in):
    admin = logged_in("admin")
    engine = target.engines["sales"]
    names = {"{tenant}": "sales", "{pool}": "shared", "{unit}": "small", "{engine}": engine}
    bodies = {"/api/v1/statements": {"statement": FORGERY}, "/api/v1/engines": {"tenant": "sales", "pool": "shared"}}
    operations = [(path, method) for path, of in openapi().items() for method in of]
    operations += [("/api", "get"), ("/api/v1", "get"), ("/api/v1/no/such/path", "get"), ("//api/v1/tenants", "get")]
    assert len(operations) > 20, operations
    for path, method in operations:
        body = json.dumps(bodies.get(path, {})).encode() if method == "post" else None
        for name, value in names.items():
            path = path.replace(name, value)
        for content_type in ("application/json", THRIFT_TYPE):
            headers = {"Cookie": f"{COOKIE}={admin.cookie}", "Content-Type": content_type}
            status, received, text = target.http(method.upper(), path, body, headers=headers)
            variant = (method, path, content_type, text)
            assert (status, received["Content-Type"]) == (401, "application/problem+json"), variant
            problem = {"title": NO_CREDENTIALS.strip(), "status": 401, "sqlstate": "28000"}
            assert json.loads(text) == problem, variant
            assert received["WWW-Authenticate"] == 'Basic realm="enginehouse"' and "Set-Cookie" not in received, variant
    # With credentials beside it the API is served, and gives no cookie.
    credentials = {"Authorization": basic("admin", password_of("admin")), "Cookie": f"{COOKIE}={admin.cookie}"}
    status, received, _ = target.http("GET", "/api/v1/tenants", headers=credentials)
    assert status == 200 and "Set-Cookie" not in received
    assert_nothing_was_forged(target)
    engines = target.execute("SHOW ENGINES sales")
    assert [(it["engine"], it["state"]) for it in engines] == [(engine, "ready")], engines
    assert admin.is_served()


def openapi():
    """The operations of the REST API by path, as the page has them."""
    return json.loads((REPOSITORY / "docs/openapi.json").read_text())["paths"]
