"""What a holder of a role's key file can send to an agent: a proof of SASL `ENGINEHOUSE-ED25519`, and calls beyond HiveServer2.

The signature is computed here, from the description in `crates/hs2/src/sasl/service.rs`, so that an attacker may sign anything.
"""

import base64
import json
import socket
import struct
import tomllib

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TMessageType, TType
from thrift.transport.TTransport import TMemoryBuffer

from harness.clients import split
from harness.role_keys import secrets_of
from harness.thrift_messages import COMPLETE, OK, START, sasl
from harness.transports import read_exactly, read_sasl

MECHANISM = b"ENGINEHOUSE-ED25519"
CONTEXT = b"enginehouse service 1"
ANSWER_WITHIN_S = 30
AGENT = "metadata-agent"


class NotAccepted(Exception):
    """The text of the refusal."""


def signing_key(seed):
    """The private key with this seed, which a key file has in base64."""
    return Ed25519PrivateKey.from_private_bytes(base64.b64decode(seed))


def signing_key_of(path, generation=1):
    """The private key of the role of a key file."""
    return signing_key(secrets_of(path)["signing", generation])


def role_of(path):
    return tomllib.loads(path.read_text())["role"]


def message(challenge, audience, role, generation, user):
    fields = (CONTEXT, challenge, audience.encode(), role.encode(), struct.pack(">I", generation), user.encode())
    return b"".join(struct.pack(">I", len(it)) + it for it in fields)


def proof(key, challenge, audience, role, generation=1, user=""):
    signature = key.sign(message(challenge, audience, role, generation, user))
    return struct.pack(">I", generation) + signature + role.encode() + b"\0" + user.encode()


class Component:
    """A connection to an agent that has proven a role. `answer` makes the payload of the proof from the challenge."""

    def __init__(self, address, answer):
        self.connection = socket.create_connection(split(address), timeout=ANSWER_WITHIN_S)
        self.connection.sendall(sasl(START, MECHANISM))
        status, self.challenge = read_sasl(self.connection)
        assert (status, len(self.challenge)) == (OK, 32)
        self.connection.sendall(sasl(COMPLETE, answer(self.challenge)))
        status, text = read_sasl(self.connection)
        if status != COMPLETE:
            self.close()
            raise NotAccepted(text.decode())

    def call(self, method, **fields):
        """Calls with one struct of numbers and texts, in their order; returns the fields of the answer by number."""
        buffer = TMemoryBuffer()
        protocol = TBinaryProtocol(buffer)
        protocol.writeMessageBegin(method, TMessageType.CALL, 1)
        protocol.writeFieldBegin("request", TType.STRUCT, 1)
        for number, value in enumerate(fields.values(), 1):
            is_number = isinstance(value, int)
            protocol.writeFieldBegin("", TType.I64 if is_number else TType.STRING, number)
            (protocol.writeI64 if is_number else protocol.writeString)(value)
        protocol.writeFieldStop()
        protocol.writeFieldStop()
        self.connection.sendall(struct.pack(">I", len(buffer.getvalue())) + buffer.getvalue())
        (length,) = struct.unpack(">I", read_exactly(self.connection, 4))
        protocol = TBinaryProtocol(TMemoryBuffer(read_exactly(self.connection, length)))
        name, kind, _ = protocol.readMessageBegin()
        assert (name, kind) == (method, TMessageType.REPLY), (name, kind)
        # The result has the answer as its field 0.
        assert protocol.readFieldBegin()[1:] == (TType.STRUCT, 0)
        return read_struct(protocol)

    def outcome(self, method, **fields):
        """The value of a call to a metadata agent, or the error of its refusal."""
        answer = self.call(method, **fields)
        if 3 in answer:
            kind, detail = answer[3][1], answer[3][2]
            return json.loads(detail) if kind == "refused" else (kind, detail)
        return json.loads(answer[2])

    def close(self):
        self.connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def read_struct(protocol):
    found = {}
    while True:
        _, kind, number = protocol.readFieldBegin()
        if kind == TType.STOP:
            return found
        readers = {
            TType.STRUCT: lambda: read_struct(protocol),
            TType.STRING: protocol.readString,
            TType.I32: protocol.readI32,
            TType.I64: protocol.readI64,
            TType.BOOL: protocol.readBool,
        }
        found[number] = readers[kind]()


def component(address, audience, path, generation=1, user="", role=None):
    """A connection with the key of a file. The claimed role may be another one than the file's."""
    key, role = signing_key_of(path, generation), role or role_of(path)
    return Component(address, lambda challenge: proof(key, challenge, audience, role, generation, user))
