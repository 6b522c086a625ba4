"""The relay: an HTTP server and client of aiohttp, in a thread with a loop of its own. See the package."""

import asyncio
import collections
import http
import itertools
import json
import ssl
import threading

import aiohttp
import yarl
from aiohttp import web

from harness.api_relay.calls import ApiCall
from harness.api_relay.faults import Faults

CALL_WITHIN_S = 10
CONNECT_WITHIN_S = 10
# The API server itself ends what takes longer than a minute.
RESPONSE_WITHIN_S = 90
# An idle connection is the client's to close.
IDLE_S = 3600
# The API server accepts 3 MB, and etcd half of that; a list of 10,000 pods is larger.
MAX_BODY = 256 << 20
# Headers of one connection. A compressed body could not be inspected.
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "expect", "te", "trailer", "accept-encoding"}
AUTO_HEADERS = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
numbers = itertools.count()


class ApiRelay:
    """Listens on a free port of loopback and relays to the API server of `cluster` (a `harness.control_plane.Kubernetes`) until
    it is closed. It has the server's own certificate, so that clients trust both. An API server that was killed and started
    again is found again; calls in between lose their connection, as without a relay."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.number = next(numbers)
        # Only increase: (verb, resource) → requests.
        self.requests = collections.Counter()
        # Errors of this code, reported by `close`.
        self.failures = []
        self.faults = Faults(self._run)
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._work, name=f"relay to {cluster.address}", daemon=True)
        self.thread.start()
        self._await(self._start())

    # The interface for tests.

    def fault(self, kind, match, **options):
        """A fault of `harness.api_relay.faults`, until it is lifted or used up; also for `with`."""
        return self.faults.add(kind, match, **options)

    def kubeconfig_of(self, token, name, namespace="default"):
        """The path of a kubeconfig through the relay."""
        # A name of its own: the cluster's own processes read the one without a relay.
        return self.cluster.kubeconfig_of(token, f"{name}-relay-{self.number}", namespace, self.address)

    def version(self):
        """The current version of the cluster, for `stale` later: the server forgets one after some minutes."""
        return self.cluster.admin.list("namespaces", limit=1)["metadata"]["resourceVersion"]

    def close(self):
        """Ends all connections; fails if this code did."""
        if self.thread.is_alive():
            self._await(self._end())
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join(CALL_WITHIN_S)
            assert not self.thread.is_alive(), "the relay's thread does not end"
            self.loop.close()
        assert not self.failures, self.failures

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # The thread.

    def _work(self):
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def _await(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(CALL_WITHIN_S)

    def _run(self, action):
        async def act():
            action()

        if self.thread.is_alive():
            self._await(act())

    async def _start(self):
        to_server = ssl.create_default_context(cafile=self.cluster.authority)
        connector = aiohttp.TCPConnector(ssl=to_server, limit=0)
        self.session = aiohttp.ClientSession(connector=connector, auto_decompress=False, read_bufsize=MAX_BODY)
        # A request that may have taken effect is the client's to repeat.
        self.session._retry_connection = False
        serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        serving.load_cert_chain(*(self.cluster.certificates / f"apiserver.{it}" for it in ("crt", "key")))
        server = web.Server(
            self._serve,
            request_factory=lambda *it: web.BaseRequest(*it, self.loop, client_max_size=MAX_BODY),
            # So a handler is cancelled when its client leaves.
            handler_cancellation=True,
            keepalive_timeout=IDLE_S,
            access_log=None,
        )
        self.runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", 0, ssl_context=serving).start()
        self.address = f"127.0.0.1:{self.runner.addresses[0][1]}"

    async def _end(self):
        await self.runner.cleanup()
        await self.session.close()

    # Requests.

    async def _serve(self, request):
        call = ApiCall(request.method, request.raw_path)
        self.requests[call.verb, call.resource] += 1
        try:
            assert "Upgrade" not in request.headers, f"{call}: the relay supports no upgrade"
            body = await request.read()
            fault = self.faults.for_request(call)
            if fault is None:
                return await self._pass_on(request, call, body)
            if fault.kind == "stale":
                return await self._answer_stale(fault, request, call, body)
            return await self._refuse(fault, request, call, body)
        except (aiohttp.ClientError, OSError, TimeoutError):
            await hang_up(request)
        except Exception as error:
            self.failures.append(repr(error))
            await hang_up(request)

    async def _refuse(self, fault, request, call, body):
        """Injects a fault of requests, before or after the server has handled the request."""
        answer = None
        if fault.after:
            try:
                answer = await self._answer(request, call.target, body)
            except BaseException:
                fault.missed()
                raise
        fault.done()
        if fault.kind in ("silence", "hold"):
            try:
                await fault.lifted.wait()
            except asyncio.CancelledError:
                fault.left += 1
                raise
        if fault.kind in ("silence", "hang_up"):
            await hang_up(request)
        if fault.kind == "hold":
            return answer or await self._pass_on(request, call, body)
        if fault.kind == "gone" and call.verb == "watch":
            return web.Response(body=error_event(fault), headers={"Content-Type": "application/json"})
        status = fault.status()
        headers = {"Content-Type": "application/json"}
        if fault.kind == "throttle":
            headers["Retry-After"] = str(fault.retry_after_s)
        reason = http.HTTPStatus(status["code"]).phrase
        return web.Response(status=status["code"], reason=reason, headers=headers, body=json_line(status))

    async def _answer_stale(self, fault, request, call, body):
        answer = None
        try:
            answer = await self._answer(request, call.at(fault.version), body)
            return answer
        finally:
            # A server that does not know that version any more, or refuses the client, gave no stale list.
            if answer is not None and answer.status == http.HTTPStatus.OK:
                fault.done()
            else:
                fault.missed()

    async def _pass_on(self, request, call, body):
        if not call.streams:
            return await self._answer(request, call.target, body)
        async with asyncio.timeout(RESPONSE_WITHIN_S):
            response = await self._ask(request, call.target, body)
        async with response:
            if response.status != http.HTTPStatus.OK:
                return await whole(response)
            return await self._stream(request, call, response)

    async def _answer(self, request, target, body):
        async with asyncio.timeout(RESPONSE_WITHIN_S), await self._ask(request, target, body) as response:
            return await whole(response)

    async def _ask(self, request, target, body):
        return await self.session.request(
            request.method,
            yarl.URL(f"https://{self.cluster.address}{target}", encoded=True),
            headers=own_headers(request),
            skip_auto_headers=AUTO_HEADERS,
            data=body or None,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_WITHIN_S),
        )

    async def _stream(self, request, call, response):
        answer = web.StreamResponse(reason=response.reason, headers=own_headers(response))
        answer.enable_chunked_encoding()
        await answer.prepare(request)
        if call.verb == "watch" and response.content_type == "application/json":
            await self._pass_events(request, call, response.content, answer)
        else:
            async for piece in response.content.iter_any():
                wanted = call.verb == "watch" and self.faults.want_events_of(call)
                assert not wanted, f"{call}: a fault wants events that are not JSON"
                await answer.write(piece)
        await answer.write_eof()
        return answer

    async def _pass_events(self, request, call, lines, answer):
        late = []
        async for line in lines:
            event = json.loads(line)
            fault = self.faults.for_event(call, event["type"], event["object"])
            if fault is not None:
                fault.done()
            kind = fault and fault.kind
            if kind == "drop":
                continue
            if kind == "end":
                return
            if kind == "expire":
                await answer.write(error_event(fault))
                return
            if kind == "tear":
                # Half of a chunk whose length announces the whole. Unlike an abort, closing sends what was written.
                request.transport.write(b"%x\r\n%s" % (len(line), line[: len(line) // 2]))
                request.transport.close()
                await asyncio.Event().wait()
            for it in [line, *late]:
                await answer.write(it)
            late = [line] if kind == "repeat" and fault.late else []
            if kind == "repeat" and not fault.late:
                await answer.write(line)


async def hang_up(request):
    """Ends the connection without a response; this cancels the handler."""
    if request.transport is not None:
        request.transport.abort()
    await asyncio.Event().wait()


async def whole(response):
    return web.Response(
        status=response.status, reason=response.reason, headers=own_headers(response), body=await response.read()
    )


def own_headers(message):
    return [(name, value) for name, value in message.headers.items() if name.lower() not in HOP_BY_HOP]


def error_event(fault):
    return json_line({"type": "ERROR", "object": fault.status()})


def json_line(value):
    return json.dumps(value).encode() + b"\n"
