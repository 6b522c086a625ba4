"""Rows B20 to B23: tickets for another service, of another realm, sent twice, and tokens that are no tickets."""

import base64
import contextlib
import socket
import struct

import pytest

from harness import ticket_clients
from harness.attacked_gateway import AttackedGateway
from harness.clients import split
from harness.http_messages import THRIFT_TYPE
from harness.kdc import OTHER_REALM, REALM, Kdc
from harness.login_attempts import HTTP, REST, SASL, over_http
from harness.thrift_messages import COMPLETE, OK, open_session, sasl
from harness.transports import read_sasl

FAILED = "authentication failed"
# Object identifiers in DER: SPNEGO, and the mechanism of NTLM.
SPNEGO = bytes.fromhex("06062b0601050502")
NTLM = bytes.fromhex("060a2b06010401823702020a")


class Gateway(AttackedGateway):
    """Its users are those of a realm."""

    def __init__(self, folder):
        folder.mkdir()
        self.kdc = Kdc(folder / "kdc", ("alice",), (REALM, OTHER_REALM)).start()
        super().__init__(folder, "kerberos", env=self.kdc.of_server)
        self.sources = iter([f"127.0.{net}.{host}" for net in range(160, 170) for host in range(1, 250)])

    def close(self):
        super().close()
        self.kdc.close()

    def token(self, service="hive", realm=REALM):
        """The first token of a client with a ticket for the service."""
        kerberos = pytest.importorskip("kerberos")
        with ticket_clients.tickets(self.kdc.of_client("alice", realm)):
            _, context = kerberos.authGSSClientInit(f"{service}@localhost")
            kerberos.authGSSClientStep(context, "")
            return base64.b64decode(kerberos.authGSSClientResponse(context))

    def send(self, transport, token):
        """Whether the token is accepted, and the text of the response. Failures are counted by address."""
        address = split(self.standalone.address)
        with socket.create_connection(address, timeout=60, source_address=(next(self.sources), 0)) as connection:
            if transport == SASL:
                connection.sendall(sasl(1, b"GSSAPI") + sasl(OK, token))
                status, text = read_sasl(connection)
                return status in (OK, COMPLETE), text.decode(errors="replace")
            authorization = f"Authorization: Negotiate {base64.b64encode(token).decode()}"
            if transport == REST:
                answer = over_http(connection, "GET /api/v1/tenants", authorization)
            else:
                thrift = f"Content-Type: {THRIFT_TYPE}"
                answer = over_http(connection, "POST /cliservice", authorization, thrift, body=open_session())
            return answer.accepted, answer.text

    def refuses(self, token, transport, text=FAILED):
        accepted, answer = self.send(transport, token)
        assert not accepted and text in answer, (transport, answer)

    def accepts(self, token, transport):
        accepted, answer = self.send(transport, token)
        assert accepted, (transport, answer)


ALL = (SASL, HTTP, REST)


@pytest.fixture(scope="module")
def gateway(workspace):
    with contextlib.closing(Gateway(workspace / "tickets")) as it:
        yield it
        address = it.standalone.address.replace("127.0.0.1", "localhost")
        it.check_health(ticket_clients.pyhive_session(address, it.kdc.of_client("alice")))


def test_b20_a_ticket_for_another_service_is_refused(gateway):
    for transport in ALL:
        gateway.accepts(gateway.token("HTTP"), transport)
        gateway.refuses(gateway.token("host"), transport)
    assert f"ticket for the service host/localhost@{REALM}" in gateway.standalone.logs.text()


def test_b21_a_ticket_of_another_realm_is_refused(gateway):
    for transport in ALL:
        gateway.refuses(gateway.token(realm=OTHER_REALM), transport)
    assert f"ticket of alice@{OTHER_REALM}, of another realm" in gateway.standalone.logs.text()


def test_b22_a_ticket_that_is_sent_again_is_refused(gateway):
    for first in ALL:
        for second in ALL:
            token = gateway.token()
            gateway.accepts(token, first)
            gateway.refuses(token, second)


def test_b23_tokens_that_are_no_tickets_are_refused(gateway):
    valid = gateway.token()
    ntlm = b"NTLMSSP\0" + struct.pack("<II", 1, 0x00008201) + bytes(16)
    offer = der(0xA0, der(0x30, der(0xA0, der(0x30, NTLM)) + der(0xA2, der(0x04, ntlm))))
    for token in (
        b"",
        b"\0",
        b"ann",
        b"\xff" * 4096,
        ntlm,
        der(0x60, SPNEGO + offer),
        # A length beyond the token, and the first half of a ticket.
        b"\x60\x84\x7f\xff\xff\xff" + valid[4:],
        valid[: len(valid) // 2],
        valid[:-1] + bytes([valid[-1] ^ 1]),
    ):
        for transport in ALL:
            if token or transport == SASL:
                gateway.refuses(token, transport)
    gateway.accepts(valid, HTTP)


def der(tag, content):
    length = len(content)
    return bytes([tag, length]) + content if length < 128 else bytes([tag, 0x82, length >> 8, length & 0xFF]) + content
