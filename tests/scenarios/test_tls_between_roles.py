"""TLS between roles: what is heard on the way to a metadata agent, and what agents and engines answer to plain clients."""

import socket

from harness.clients import split
from harness.control import Control
from harness.doctor import check, diagnosed
from harness.ports import free_port
from harness.tcp_relay import TcpRelay
from harness.thrift_messages import BAD, COMPLETE, START, sasl
from harness.transports import read_sasl

SECRET = "canary-3f1c9a"
ANSWER_WITHIN_S = 20
PROGRAMS = ("agent-1", "proxy-a")
SASL_START = sasl(START, b"ENGINEHOUSE-ED25519")
REFUSED = b'this agent requires TLS between roles\nHint: Set cluster.tls = "required", or "optional", for the role that calls.'


def alter(control, unit, number):
    """A statement with a secret, which masters then read with its value."""
    control.execute(f"ALTER RESOURCE UNIT {unit} PROPERTIES ('s3.secret_key' = '{SECRET}-{number}') WAIT '1m'")


def answer_without_tls(address):
    """What the agent there sends to a component that begins to log in without TLS."""
    with socket.create_connection(split(address), timeout=ANSWER_WITHIN_S) as connection:
        connection.sendall(SASL_START)
        status, challenge = read_sasl(connection)
        assert len(challenge) == 32, (status, challenge)
        connection.sendall(sasl(COMPLETE, b"\0\0\0\1" + bytes(64) + b"proxy\0ann"))
        return read_sasl(connection)


def test_nothing_between_roles_is_plain_text(own_cluster):
    port, heard = free_port(), []
    with TcpRelay(f"127.0.0.1:{port}", heard=heard.append) as relay:
        cluster = own_cluster(start=False)
        cluster.settings["metadata_agent"] = {"listen": f"127.0.0.1:{port}", "advertise": relay.address}
        cluster.start(PROGRAMS)
        cluster.wait_for_master()
        control = Control(cluster.addresses["proxy-a"])
        tenant, pool, unit = control.make("heard")
        control.start(tenant, pool, unit)
        alter(control, unit, 1)
        passed = b"".join(heard)
        for word in (SECRET.encode(), unit.encode(), b"ENGINEHOUSE-ED25519", b"admin"):
            assert word not in passed, word
        assert relay.connections > 5 and passed[:1] == b"\x16", "every connection begins with a handshake"

        live = cluster.nodes.read(f"engines/{cluster.nodes.children('engines')[0]}/live")
        for address in (relay.address, live["address"]):
            assert answer_without_tls(address) == (BAD, REFUSED)
        _, report = diagnosed(cluster, cluster.write("doctor"))
        assert check(report, "keys")["findings"] == [], report

        # The same on a cluster without TLS is heard: the relay hears what there is to hear.
        cluster.settings["cluster"] = {"tls": "off"}
        for name in PROGRAMS:
            cluster.restart(name)
        cluster.wait_for_master()
        heard.clear()
        alter(Control(cluster.addresses["proxy-a"]), unit, 2)
        assert f"{SECRET}-2".encode() in b"".join(heard)
