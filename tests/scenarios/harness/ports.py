"""Ports of the tests' own servers: free ones on loopback.

A port is free when it is asked for; a server that finds it taken all the same ends, and its `start` says so.
"""

import socket


def free_port():
    return free_ports(1)[0]


def free_ports(count):
    """Some different ports: held together, so that none is given out twice."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [it.getsockname()[1] for it in sockets]
    finally:
        for it in sockets:
            it.close()
