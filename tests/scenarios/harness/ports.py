"""Free ports of loopback for the tests' own servers.

A server binds its port seconds after it was chosen, so none is chosen from the range that the kernel assigns to others, and
none that a process of the tests has chosen before: workers of a parallel run choose at the same time.
"""

import pathlib
import random
import socket

LEAST = 10_000
KERNELS = pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range")
# What claims the ports that this process has chosen, until it ends.
claims = []


def free_port():
    return free_ports(1)[0]


def free_ports(count):
    kernels = int(KERNELS.read_text().split()[0])
    # Where the kernel has them all, it is as good as it can be.
    below = kernels if kernels > LEAST + count else 65_536
    found = []
    for port in random.SystemRandom().sample(range(LEAST, below), below - LEAST):
        if is_free(port) and claim(port):
            found.append(port)
        if len(found) == count:
            return found
    raise AssertionError(f"there are no {count} free ports from {LEAST} to {below}")


def is_free(port):
    with socket.socket() as it:
        try:
            it.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def claim(port):
    """Whether no process has chosen the port before. The claim is an abstract Unix socket, which the kernel removes with us."""
    it = socket.socket(socket.AF_UNIX)
    try:
        it.bind(f"\0enginehouse-tests/port-{port}")
    except OSError:
        it.close()
        return False
    claims.append(it)
    return True
