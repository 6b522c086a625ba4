"""A statement that attempts hide where it must not be executed, and HTTP requests as bytes to hide it in.

An admin may execute it: it makes a unit.
"""

import contextlib
import json
import re

from harness.attacked import basic, password_of

UNIT = "hidden"
STATEMENT = f"CREATE RESOURCE UNIT {UNIT} DRIVER_CPU 1, DRIVER_MEMORY '512M', MAX_ENGINES 1"
STATEMENTS = "/api/v1/statements"
JSON = "Content-Type: application/json"
LAST = "Connection: close"


def request(line, *headers, body=b"", user="admin", host="localhost"):
    """The bytes of a request; with a user it has credentials."""
    lines = [f"{line} HTTP/1.1", f"Host: {host}"]
    lines += [f"Authorization: {basic(user, password_of(user))}"] if user else []
    return "".join(f"{it}\r\n" for it in [*lines, *headers, ""]).encode() + body


def posted(path=STATEMENTS, *headers, user="admin"):
    """The statement in a request of the REST API."""
    body = json.dumps({"statement": STATEMENT}).encode()
    return request(f"POST {path}", JSON, f"Content-Length: {len(body)}", *headers, body=body, user=user)


def statuses(answer):
    """Of all responses in these bytes."""
    return [int(it) for it in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)]


def was_executed(target):
    return target.execute(f"SHOW RESOURCE UNITS LIKE '{UNIT}'") != []


@contextlib.contextmanager
def never_executed(target):
    """It works when it is sent openly, and is not executed inside."""
    assert statuses(target.raw(posted(STATEMENTS, LAST))) == [200] and was_executed(target)
    target.execute(f"DROP RESOURCE UNIT {UNIT}")
    try:
        yield
    finally:
        executed = was_executed(target)
        if executed:
            target.execute(f"DROP RESOURCE UNIT {UNIT}")
        assert not executed, "the hidden statement was executed"
