"""ClientHello messages as bytes: those that no library offers any more, and that of Python's own client."""

import os
import ssl
import struct

CHANGE_CIPHER_SPEC, ALERT, HANDSHAKE, APPLICATION_DATA = range(20, 24)
# The types of all records: a byte in the clear in place of one is none of them.
OF_TLS = {CHANGE_CIPHER_SPEC, ALERT, HANDSHAKE, APPLICATION_DATA}
SERVER_HELLO = 2
TLS_1_0, TLS_1_1, TLS_1_2 = 0x0301, 0x0302, 0x0303
ECDHE_ECDSA_AES_128_GCM = 0xC02B
SERVER_NAME, GROUPS, POINT_FORMATS, SIGNATURES = 0, 10, 11, 13


def client_hello(version, suites):
    """In a record of its own. It offers all that the server needs but for `version` and `suites`."""
    name = b"localhost"
    extensions = b"".join(
        struct.pack(">HH", number, len(value)) + value
        for number, value in (
            (SERVER_NAME, struct.pack(">HBH", len(name) + 3, 0, len(name)) + name),
            (GROUPS, struct.pack(">3H", 4, 0x001D, 0x0017)),
            (POINT_FORMATS, b"\1\0"),
            (SIGNATURES, struct.pack(">3H", 4, 0x0403, 0x0804)),
        )
    )
    body = struct.pack(">H", version) + os.urandom(32) + b"\0"
    body += struct.pack(f">{len(suites) + 1}H", 2 * len(suites), *suites) + b"\1\0"
    body += struct.pack(">H", len(extensions)) + extensions
    message = b"\1" + len(body).to_bytes(3, "big") + body
    return struct.pack(">BHH", HANDSHAKE, TLS_1_0, len(message)) + message


def of_python(context):
    """The first bytes of a client of Python's."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a client waits for no server")


def records(received):
    """The records in these bytes: type and content of each."""
    at, found = 0, []
    while at < len(received):
        kind, _, length = struct.unpack_from(">BHH", received, at)
        found.append((kind, received[at + 5 : at + 5 + length]))
        at += 5 + length
    return found
