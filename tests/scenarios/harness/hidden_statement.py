"""A statement that attempts hide where it must not be executed. An admin may execute it: it makes a unit."""

import contextlib
import json

from harness.http_messages import JSON, LAST, request, statuses

UNIT = "hidden"
STATEMENT = f"CREATE RESOURCE UNIT {UNIT} DRIVER_CPU 1, DRIVER_MEMORY '512M', MAX_ENGINES 1"
STATEMENTS = "/api/v1/statements"


def posted(path=STATEMENTS, *headers, user="admin"):
    """The statement in a request of the REST API."""
    body = json.dumps({"statement": STATEMENT}).encode()
    return request(f"POST {path}", JSON, f"Content-Length: {len(body)}", *headers, body=body, user=user)


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
