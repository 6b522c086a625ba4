"""A TCP relay in the test's own process, between a program and a server, so that the network between them can be cut.

*Silence*: nothing passes in either direction, neither data nor the end of a connection; new connections are accepted; what was
sent is delivered when the cut is healed, as TCP would. *Reset*: every connection is reset on both sides, and new ones are
refused.
"""

import asyncio
import contextlib
import errno
import socket
import struct
import threading

from harness.ports import free_port

CHUNK = 64 * 1024
CALL_WITHIN_S = 10
BACKLOG = 128
PORTS_TRIED = 10
# Closing a socket with this option sends a reset instead of an end.
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


def listening():
    """A socket that listens on a free port and was bound to it by number: only such a one keeps it when it stops
    listening for a while."""
    for _ in range(PORTS_TRIED):
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", free_port()))
            listener.listen(BACKLOG)
        except OSError as error:
            listener.close()
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return listener
    raise AssertionError(f"{PORTS_TRIED} ports that were free were taken in between")


class TcpRelay:
    """Listens on a free port of loopback and relays every connection to one server, until it is closed. `delay_s` delays what
    the server sends; `change` maps each piece that goes to the server; `heard` is called with each piece of both directions."""

    def __init__(self, server, delay_s=0.0, change=None, heard=None):
        self.delay_s = delay_s
        self.heard = heard or (lambda data: None)
        self.change = change or (lambda data: data)
        host, port = server.rsplit(":", 1)
        self.server = (host, int(port))
        self.listener = listening()
        self.listener.setblocking(False)
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.connections = 0
        self.bytes_to_server = 0
        self.bytes_to_client = 0
        self.open = set()
        self.tasks = set()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._run, name=f"relay to {server}", daemon=True)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    @property
    def passed(self):
        return self.bytes_to_server + self.bytes_to_client

    def cut(self, kind="silence"):
        assert kind in ("silence", "reset"), kind
        self._call(self._silence if kind == "silence" else self._reset)

    def heal(self):
        self._call(self._heal)

    def close(self):
        if self.thread.is_alive():
            self._call(self._end)
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join(timeout=CALL_WITHIN_S)
            assert not self.thread.is_alive(), "the relay's thread did not end"
            self.loop.close()

    def _run(self):
        asyncio.set_event_loop(self.loop)
        self.flows = asyncio.Event()
        self.flows.set()
        self.accepting = self.loop.create_task(self._accept())
        self.loop.run_forever()

    def _call(self, action):
        asyncio.run_coroutine_threadsafe(action(), self.loop).result(CALL_WITHIN_S)

    async def _silence(self):
        self.flows.clear()

    async def _reset(self):
        self.accepting.cancel()
        self.listener.shutdown(socket.SHUT_RDWR)
        await self._drop_all()

    async def _heal(self):
        self.flows.set()
        if self.accepting.done() or self.accepting.cancelled():
            self.listener.listen(BACKLOG)
            self.accepting = self.loop.create_task(self._accept())

    async def _end(self):
        self.accepting.cancel()
        self.flows.set()
        await self._drop_all()
        self.listener.close()

    async def _drop_all(self):
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for one in list(self.open):
            self._drop(one)

    def _drop(self, one):
        if one in self.open:
            self.open.discard(one)
            with contextlib.suppress(OSError):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            one.close()

    async def _accept(self):
        while True:
            client, _ = await self.loop.sock_accept(self.listener)
            client.setblocking(False)
            self.connections += 1
            self.open.add(client)
            task = self.loop.create_task(self._relay(client))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def _relay(self, client):
        server = socket.socket()
        server.setblocking(False)
        self.open.add(server)
        for one in (client, server):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            await self.flows.wait()
            await self.loop.sock_connect(server, self.server)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(client, server, "bytes_to_server"))
                both.create_task(self._pump(server, client, "bytes_to_client"))
        except* OSError:
            await self.flows.wait()
            self._drop(client)
            self._drop(server)
        else:
            for one in (client, server):
                self.open.discard(one)
                one.close()

    async def _pump(self, source, sink, counter):
        while True:
            data = await self.loop.sock_recv(source, CHUNK)
            # What was read when the cut came is on its way: it waits, and so does the news of an end.
            await self.flows.wait()
            if not data:
                sink.shutdown(socket.SHUT_WR)
                return
            self.heard(data)
            if counter == "bytes_to_server":
                data = self.change(data)
            elif self.delay_s:
                await asyncio.sleep(self.delay_s)
            await self.loop.sock_sendall(sink, data)
            setattr(self, counter, getattr(self, counter) + len(data))
