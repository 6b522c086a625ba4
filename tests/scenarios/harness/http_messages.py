"""HTTP requests and responses as bytes."""

import re

from harness.attacked import basic, password_of

JSON = "Content-Type: application/json"
LAST = "Connection: close"
THRIFT_TYPE = "application/x-thrift"


def request(line, *headers, body=b"", user="admin", host="localhost"):
    """The bytes of a request; with a user it has credentials."""
    lines = [f"{line} HTTP/1.1", f"Host: {host}"]
    lines += [f"Authorization: {basic(user, password_of(user))}"] if user else []
    return "".join(f"{it}\r\n" for it in [*lines, *headers, ""]).encode() + body


def statuses(answer):
    """Of all responses in these bytes."""
    return [int(it) for it in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)]
