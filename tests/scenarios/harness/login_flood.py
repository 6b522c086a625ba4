"""A flood of logins that come to nothing: connections of different kinds from many addresses of this machine.

It is a process of its own, with a lower priority, so that what it computes delays no client. It ends with its standard input,
and then prints what became of the connections.

| kind | what it sends |
| --- | --- |
| silent | nothing |
| slow hello | the first bytes of a TLS handshake, one each second |
| started | a TLS handshake, and the first message of SASL |
| wrong password | a login of a user who does not exist |
"""

import asyncio
import collections
import functools
import json
import os
import random
import resource
import ssl
import subprocess
import sys

from harness.clients import split
from harness.processes import REPOSITORY
from harness.thrift_messages import START, login, sasl

# A record of a handshake of 512 bytes.
HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64)
# How many connections of each kind an address has at the same time: more than it may have before authentication.
PER_ADDRESS = {"silent": 16, "slow hello": 8, "started": 8, "wrong password": 2}
PAUSE_S = 0.5
NICE = 10


class Flood:
    """`addresses` are those of the clients, `target` is that of the proxy."""

    def __init__(self, target, addresses):
        command = [sys.executable, "-m", "harness.login_flood", target, *addresses]
        self.process = subprocess.Popen(
            command, cwd=REPOSITORY / "tests/scenarios", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def end(self):
        """By kind: how many connections were opened, and how many of them were answered, closed, or failed before that."""
        counts, _ = self.process.communicate(timeout=60)
        assert self.process.returncode == 0
        return json.loads(counts)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(timeout=10)


async def connection_of(kind, target, source, number, counts):
    """One connection, to its end."""
    host, port = split(target)
    inside_tls = kind in ("started", "wrong password")
    options = {"ssl": unverified(), "server_hostname": "localhost"} if inside_tls else {}
    reader, writer = await asyncio.open_connection(host, port, local_addr=(source, 0), **options)
    counts["opened"] += 1
    try:
        if kind == "slow hello":
            for byte in HELLO:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(1)
        elif kind == "started":
            writer.write(sasl(START, b"PLAIN"))
        elif kind == "wrong password":
            writer.write(login(f"flood{number}", "wrong"))
        answer = await reader.read()
        counts["answered" if answer else "closed"] += 1
    except (ConnectionError, ssl.SSLError):
        counts["closed"] += 1
    finally:
        writer.close()


async def clients_of(kind, target, source, counts):
    """One connection after the other."""
    number = 0
    while True:
        number += 1
        try:
            await connection_of(kind, target, source, number, counts)
        except OSError:
            counts["failed"] += 1
        await asyncio.sleep(random.uniform(0, PAUSE_S))


@functools.cache
def unverified():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def flood(target, addresses):
    counts = {kind: collections.Counter() for kind in PER_ADDRESS}
    tasks = [
        asyncio.create_task(clients_of(kind, target, source, counts[kind]))
        for source in addresses
        for kind, count in PER_ADDRESS.items()
        for _ in range(count)
    ]
    await asyncio.to_thread(sys.stdin.read)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    print(json.dumps(counts))


if __name__ == "__main__":
    os.nice(NICE)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(flood(sys.argv[1], sys.argv[2:]))
