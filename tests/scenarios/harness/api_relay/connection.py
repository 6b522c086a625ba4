"""One client's connection: requests one after the other, each passed on or treated as a fault says."""

import asyncio
import http
import json

from harness.api_relay import wire
from harness.api_relay.calls import ApiCall

# The API server itself ends what takes longer than a minute.
ANSWER_WITHIN_S = 90
OK = "200"


class Ended(Exception):
    """The connection ends here: the client has left, or a fault or a server that is gone wants it."""


class Connection:
    """What the client sent last, and the connection to the server that its plain requests use."""

    def __init__(self, relay, reader, writer):
        self.relay, self.reader, self.writer = relay, reader, writer
        self.server = None
        # What was read of the next request while nobody expected one.
        self.ahead = b""

    async def run(self):
        try:
            while (read := await self.next_head()) is not None:
                await self.handle(*read, await wire.read_body(self.reader, read[1], is_answer=False))
        except (Ended, OSError, EOFError, TimeoutError):
            pass
        finally:
            self.writer.transport.abort()
            self.forget_server()

    async def next_head(self):
        ahead, self.ahead = self.ahead, b""
        return await wire.read_head(self.reader, ahead)

    async def handle(self, first, headers, body):
        method, target, _ = first.split(" ")
        call = ApiCall(method, target, headers.get("User-Agent", ""))
        if headers.get("Upgrade"):
            raise AssertionError(f"{call}: the relay has no {headers['Upgrade']}")
        self.relay.requests[call.verb, call.resource] += 1
        request = call, headers, body
        fault = self.relay.faults.for_request(call)
        if fault is None:
            await self.pass_on(*request)
        elif fault.kind == "stale":
            await self.answer_stale(fault, *request)
        else:
            await self.refuse(fault, *request)

    async def refuse(self, fault, call, headers, body):
        """What a fault of requests does, whatever the server did before."""
        answer = None
        if fault.after:
            try:
                answer = await self.ask(call.target, call, headers, body)
            except BaseException:
                fault.missed()
                raise
        fault.done(call)
        if fault.kind in ("silence", "hold"):
            try:
                await self.unless_left(fault.lifted.wait())
            except Ended:
                fault.left += 1
                raise
        if fault.kind in ("silence", "hang_up"):
            raise Ended
        if fault.kind == "hold":
            await (self.pass_on(call, headers, body) if answer is None else self.answer(*answer))
        elif fault.kind == "gone" and call.verb == "watch":
            await self.answer_status_as_watch(fault)
        else:
            await self.answer_status(fault)

    async def answer_stale(self, fault, call, headers, body):
        try:
            first, *rest = await self.ask(call.at(fault.version), call, headers, body)
        except BaseException:
            fault.missed()
            raise
        if first.split(" ")[1] == OK:
            fault.done(call)
        else:
            # The server doesn't know that version any more, or refuses the client: nobody may think that it was stale.
            fault.missed()
        await self.answer(first, *rest)

    # To the server.

    async def pass_on(self, call, headers, body):
        if call.streams:
            await self.stream(call, headers, body)
        else:
            await self.answer(*await self.ask(call.target, call, headers, body))

    async def ask(self, target, call, headers, body):
        """Asks the server: (first line, headers, body)."""
        # One that the server has ended since is of no use.
        if self.server is not None and self.server[0].at_eof():
            self.forget_server()
        if self.server is None:
            self.server = await self.relay.connect()
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                first, answered = await self.send(self.server, call.method, target, headers, body)
                return first, answered, await self.answer_body(self.server[0], call, first, answered)
        except BaseException:
            self.forget_server()
            raise

    async def send(self, server, method, target, headers, body):
        reader, writer = server
        # What is packed can't be looked into.
        kept = wire.own_headers(headers, "Accept-Encoding")
        length = (("Content-Length", len(body)),) if body or method in ("POST", "PUT", "PATCH") else ()
        writer.write(wire.head(f"{method} {target} HTTP/1.1", kept, *length) + body)
        await writer.drain()
        read = await wire.read_head(reader)
        if read is None:
            raise EOFError("the server ended without an answer")
        return read

    async def answer_body(self, reader, call, first, headers):
        if call.method == "HEAD" or first.split(" ")[1] in ("204", "304"):
            return b""
        return await wire.read_body(reader, headers, is_answer=True)

    def forget_server(self):
        if self.server is not None:
            self.server[1].transport.abort()
            self.server = None

    async def stream(self, call, headers, body):
        """A watch or a log that is followed, over a connection of its own."""
        server = await self.relay.connect()
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                first, answered = await self.send(server, call.method, call.target, headers, body)
                if first.split(" ")[1] != OK:
                    await self.answer(first, answered, await self.answer_body(server[0], call, first, answered))
                    return
            self.writer.write(wire.head(first, wire.own_headers(answered), ("Transfer-Encoding", "chunked")))
            await self.writer.drain()
            pieces = wire.read_pieces(server[0], answered, is_answer=True)
            self.relay.watches = (*self.relay.watches, call)
            try:
                await self.unless_left(self.pass_pieces(call, answered, pieces))
            finally:
                self.relay.watches = tuple(it for it in self.relay.watches if it is not call)
        finally:
            server[1].transport.abort()

    async def pass_pieces(self, call, headers, pieces):
        is_json = headers.get("Content-Type", "").startswith("application/json")
        if call.verb == "watch" and is_json:
            await self.pass_events(call, wire.read_lines(pieces))
        else:
            async for piece in pieces:
                if call.verb == "watch" and self.relay.faults.want_events_of(call):
                    raise AssertionError(f"{call}: a fault wants events that are not JSON")
                await self.write(wire.chunk(piece))
        await self.write(wire.LAST_CHUNK)

    async def pass_events(self, call, lines):
        late = []
        async for line in lines:
            event = json.loads(line)
            fault = self.relay.faults.for_event(call, event["type"], event["object"])
            if fault is not None:
                fault.done(call)
            kind = fault and fault.kind
            if kind == "drop":
                continue
            if kind == "end":
                return
            if kind == "expire":
                await self.write(wire.chunk(error_event(fault)))
                return
            if kind == "tear":
                await self.tear(line)
            copies = fault.copies if kind == "repeat" else 0
            at_once = 0 if kind == "repeat" and fault.late else copies
            await self.write(b"".join(wire.chunk(it) for it in [line] * (1 + at_once) + late))
            late = [line] * (copies - at_once)

    async def tear(self, line):
        """Half of it, of which the length of all was said, and the end of the connection."""
        whole = wire.chunk(line)
        self.writer.write(whole[: len(whole) - len(line) // 2])
        # Unlike an abort this sends what was written.
        self.writer.close()
        await self.writer.wait_closed()
        raise Ended

    # To the client.

    async def write(self, data):
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, first, headers, body):
        kept = wire.own_headers(headers)
        await self.write(wire.head(first, kept, ("Content-Length", len(body))) + body)

    async def answer_status(self, fault):
        status = fault.status()
        body = wire.json_body(status)
        more = [("Retry-After", fault.retry_after_s)] if fault.kind == "throttle" else []
        code = http.HTTPStatus(status["code"])
        await self.write(
            wire.head(
                f"HTTP/1.1 {code.value} {code.phrase}",
                {},
                ("Content-Type", "application/json"),
                *more,
                ("Content-Length", len(body)),
            )
            + body
        )

    async def answer_status_as_watch(self, fault):
        await self.write(
            wire.head("HTTP/1.1 200 OK", {}, ("Content-Type", "application/json"), ("Transfer-Encoding", "chunked"))
            + wire.chunk(error_event(fault))
            + wire.LAST_CHUNK
        )

    async def unless_left(self, waiting):
        """Waits for it, unless the client leaves before: then it is `Ended`."""
        left = asyncio.ensure_future(self.reader.read(1))
        wanted = asyncio.ensure_future(waiting)
        try:
            await asyncio.wait({left, wanted}, return_when=asyncio.FIRST_COMPLETED)
            if wanted.done():
                return wanted.result()
            raise Ended
        finally:
            for task in (left, wanted):
                task.cancel()
            # A client that has its answer may ask for the next thing in this very moment.
            read, _ = await asyncio.gather(left, wanted, return_exceptions=True)
            if isinstance(read, bytes):
                self.ahead = read


def error_event(fault):
    return wire.json_body({"type": "ERROR", "object": fault.status()})
