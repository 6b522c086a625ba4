"""The relay: a thread with a loop of its own, which takes connections and knows what holds for them. See the package."""

import asyncio
import collections
import itertools
import ssl
import threading

from harness.api_relay.connection import Connection
from harness.api_relay.faults import Faults

CALL_WITHIN_S = 10
CONNECT_WITHIN_S = 10
# How long a client that is told the end of its connection may take to agree.
FAREWELL_WITHIN_S = 1
numbers = itertools.count()


class ApiRelay:
    """Listens on a free port of loopback and relays to the API server of `cluster` (a `harness.kubernetes.Kubernetes`) until
    it is closed. It has the server's own certificate, so that who trusts the one trusts the other. An API server that
    was killed and is started again is found again: who asked meanwhile lost the connection, as without a relay."""

    def __init__(self, cluster):
        self.cluster = cluster
        host, port = cluster.address.rsplit(":", 1)
        self.server_address = (host, int(port))
        self.to_server = ssl.create_default_context(cafile=cluster.authority)
        serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        serving.load_cert_chain(cluster.certificates / "apiserver.crt", cluster.certificates / "apiserver.key")
        # Nothing but HTTP/1.1: the others need not be spoken by a client.
        serving.set_alpn_protocols(["http/1.1"])
        self.number = next(numbers)
        # Only go up: (verb, resource) → requests.
        self.requests = collections.Counter()
        self.connections = 0
        # The watches that are open now.
        self.watches = ()
        self.tasks = set()
        # What this code did wrong; told by `close`.
        self.failures = []
        self.faults = Faults(self._run)
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(
            lambda _, options: self.failures.append(str(options.get("exception") or options["message"]))
        )
        self.thread = threading.Thread(target=self._work, name=f"relay to {cluster.address}", daemon=True)
        self.thread.start()
        self.listener = self._await(
            asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=serving, ssl_shutdown_timeout=FAREWELL_WITHIN_S)
        )
        self.address = "127.0.0.1:%d" % self.listener.sockets[0].getsockname()[1]

    # What tests call.

    def fault(self, kind, match, **options):
        """A fault of `harness.api_relay.faults`, until it is lifted or used up; also for `with`."""
        return self.faults.add(kind, match, **options)

    def client(self, user="admin"):
        """A plain client of one of the cluster's users, through the relay."""
        return self.cluster.client(user, address=self.address)

    def kubeconfig(self, user="admin", namespace="default"):
        """The path of a kubeconfig for one of the cluster's users, through the relay."""
        return self.kubeconfig_of(self.cluster.tokens[user], user, namespace)

    def kubeconfig_of(self, token, name, namespace="default"):
        # A name of its own: the cluster's own processes read the one without a relay.
        return self.cluster.kubeconfig_of(token, f"{name}-relay-{self.number}", namespace, self.address)

    def version(self):
        """The version that the cluster is at now, for `stale` later: the server forgets one after some minutes."""
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

    async def _serve(self, reader, writer):
        task = asyncio.current_task()
        self.tasks.add(task)
        self.connections += 1
        try:
            await Connection(self, reader, writer).run()
        except asyncio.CancelledError:
            pass  # closed
        except Exception as error:
            self.failures.append(repr(error))
        finally:
            self.tasks.discard(task)

    async def _end(self):
        self.listener.close()
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def connect(self):
        """A new connection to the API server: (reader, writer)."""
        connecting = asyncio.open_connection(*self.server_address, ssl=self.to_server)
        return await asyncio.wait_for(connecting, CONNECT_WITHIN_S)
