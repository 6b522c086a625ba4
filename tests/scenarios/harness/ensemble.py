"""A ZooKeeper of a test's own: one server or an ensemble of three, each a process that can be killed and started again.

`tickTime` is 200 ms, so that sessions of half a second and more are possible. Data is in the test's folder; a member
that is started again finds what it had. With a CA the port of clients has TLS, and there is no other.
"""

import contextlib
import pathlib
import signal
import socket
import ssl

from harness.ports import free_ports
from harness.server_process import START_WITHIN_S, ServerProcess
from harness.waiting import wait_until

TICK_MS = 200
MIN_SESSION_TIMEOUT_MS = 400
MAX_SESSION_TIMEOUT_MS = 60_000
HEAP = "192m"
ANSWER_WITHIN_S = 2
HOST = "127.0.0.1"
# Of a port with TLS, as docs/security.md has it.
NETTY = "org.apache.zookeeper.server.NettyServerCnxnFactory"


class Member(ServerProcess):
    """One server: a process, its folder and its client port. `ca` is the file of the CA, if the port has TLS."""

    def __init__(self, number, port, folder, ca=None):
        self.name = f"ZooKeeper {number}"
        self.port = port
        self.folder = pathlib.Path(folder)
        self.ca = ca

    @property
    def address(self):
        return f"{HOST}:{self.port}"

    def command(self):
        return [
            "java",
            f"-Xmx{HEAP}",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Dzookeeper.forceSync=no",
            f"-Dzookeeper.log.dir={self.folder}",
            "-cp",
            "/etc/zookeeper/conf:/usr/share/java/*",
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            self.folder / "zoo.cfg",
        ]

    def start(self):
        self.launch()
        return self

    def connected(self):
        """A connection to the port of clients."""
        connection = socket.create_connection((HOST, self.port), ANSWER_WITHIN_S)
        if self.ca is None:
            return connection
        return ssl.create_default_context(cafile=self.ca).wrap_socket(connection, server_hostname=HOST)

    def ask(self, word):
        """The answer to a four-letter word; empty if there is none."""
        with contextlib.suppress(OSError), self.connected() as it:
            it.sendall(word.encode())
            answer = b""
            while part := it.recv(65536):
                answer += part
            return answer.decode(errors="replace")
        return ""

    def mode(self):
        for line in self.ask("srvr").splitlines():
            if line.startswith("Mode: "):
                return line.removeprefix("Mode: ").strip()
        return None

    answers = mode


class Ensemble:
    """One server (`members=1`) or several that elect a leader. Anything else than 1 or 3 has no use here. With an `authority`
    (harness.certificates) clients reach it through TLS, and not otherwise."""

    def __init__(self, folder, members=1, authority=None):
        assert members in (1, 3), members
        self.folder = pathlib.Path(folder)
        self.ca = authority and authority.certificate
        ports = free_ports(3 * members)
        self.members = []
        peers = (
            "".join(f"server.{i + 1}=127.0.0.1:{ports[3 * i + 1]}:{ports[3 * i + 2]}\n" for i in range(members))
            if members > 1
            else ""
        )
        for i in range(members):
            place = self.folder / f"zookeeper-{i + 1}"
            (place / "data").mkdir(parents=True)
            (place / "data" / "myid").write_text(f"{i + 1}\n")
            (place / "zoo.cfg").write_text(
                f"tickTime={TICK_MS}\ninitLimit=50\nsyncLimit=10\n"
                f"minSessionTimeout={MIN_SESSION_TIMEOUT_MS}\nmaxSessionTimeout={MAX_SESSION_TIMEOUT_MS}\n"
                f"dataDir={place}/data\n{self.port_of_clients(ports[3 * i], place, authority)}"
                "admin.enableServer=false\nmaxClientCnxns=0\n4lw.commands.whitelist=*\n" + peers
            )
            self.members.append(Member(i + 1, ports[3 * i], place, self.ca))

    @staticmethod
    def port_of_clients(port, place, authority):
        """The settings of a member's port. It is the only one: without `clientPort` there is no plain one."""
        if authority is None:
            return f"clientPort={port}\nclientPortAddress={HOST}\n"
        store = authority.key_store(place / "server.key")
        return (
            f"secureClientPort={port}\nsecureClientPortAddress={HOST}\nserverCnxnFactory={NETTY}\n"
            f"ssl.keyStore.location={store}\nssl.keyStore.type=PEM\nssl.clientAuth=none\n"
        )

    @property
    def connect(self):
        return ",".join(it.address for it in self.members)

    def start(self):
        """Starts every member that does not run, and waits until all of them serve."""
        started = [it.start() for it in self.members if not it.is_running()]
        for it in started:
            it.wait_serving()
        return self

    def leader(self, within_s=START_WITHIN_S):
        """The member that leads (the only one, if it is the only one)."""

        def leads():
            return next((it for it in self.members if it.is_running() and it.mode() in ("leader", "standalone")), None)

        return wait_until(leads, within_s, "a ZooKeeper leads", 0.1)

    def kill(self):
        """kill -9 of all members at once."""
        for it in self.members:
            if it.is_running():
                it.signal(signal.SIGKILL)
        for it in self.members:
            it.kill()

    def close(self):
        for it in self.members:
            if it.is_running():
                it.resume()
                it.process.terminate()
        for it in self.members:
            it.stop()
