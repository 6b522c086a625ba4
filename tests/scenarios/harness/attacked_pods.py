"""The installation whose engines hostile code attacks: engines are pods, users are in a file, and two tenants have an engine
each, in a namespace of its own.

| user | may |
| --- | --- |
| admin | everything |
| alice | tenant `sales`, whose engine is a Spark, which runs any code |
| bob | tenant `finance`, whose engine is a DataFusion: the pods of the tests have one loopback, and room for one Spark there |

The tests' pods have this machine's file system below their own, so the files of roles and of other engines exist for them, and
only their modes protect them. A container runtime does not show them at all.
"""

import base64
import functools
import re

from harness import spark
from harness.clients import pyhive_session, rows
from harness.control import Control
from harness.pods import IMAGE, PodCluster, Pods
from harness.ports import free_port
from harness.processes import run
from harness.role_keys import secrets_of

USERS = ("admin", "alice", "bob")
# Tenant → its user.
TENANTS = {"sales": "alice", "finance": "bob"}
SECRET = "spark.hadoop.fs.s3a.secret.key"
WITHIN_S = 120
STARTS_WITHIN = "5m"
# What the file of an engine has of secrets.
PRIVATE = re.compile(r'^(?:password|key|private_key|seed) = "([^"]{16,})"', re.MULTILINE)


def password_of(user):
    return f"canary-{user}-of-pods"


def property_of(tenant):
    return f"canary-property-of-{tenant}"


class AttackedPods:
    def __init__(self, folder):
        self.folder = folder
        self.pods = Pods(folder / "kubernetes", {spark.IMAGE: spark.image(folder / "image")})
        self.cluster = None
        self.control = None
        self.links, self.engines = {}, {}

    def start(self):
        users_file = self.folder / "users"
        for user in USERS:
            done = run(["passwd", "--file", users_file, user], text=f"{password_of(user)}\n")
            assert done.returncode == 0, done.stderr
        self.pods.start()
        kubernetes = {"agent_image": IMAGE, "api_server": f"https://{self.pods.kubernetes.address}"}
        access = {"authentication": ["file"], "users_file": str(users_file)}
        settings = {"kubernetes": kubernetes, "access": access, "spark": spark.in_pods(free_port())}
        self.cluster = PodCluster(self.folder / "cluster", self.pods, **settings)
        self.cluster.start()
        self.control = Control(self.address, password=password_of("admin"))
        self.make(
            "sales", f", ENGINE_TYPE 'spark', MAX_EXECUTORS 0, PROPERTIES ('{SECRET}' = '{property_of('sales')}')", spark.IMAGE
        )
        self.make("finance", f", PROPERTIES ('s3.secret_key' = '{property_of('finance')}')")
        return self

    def make(self, tenant, options, image=None):
        places = self.pods.nodes_of(tenant) + (f", IMAGE '{image}'" if image else "")
        self.links[tenant] = self.control.make(tenant, options=options, users=f"'{TENANTS[tenant]}'", places=places)
        self.engines[tenant] = self.control.start(*self.links[tenant], wait=STARTS_WITHIN)

    def close(self):
        try:
            if self.cluster:
                self.cluster.close()
        finally:
            self.pods.close()

    @property
    def address(self):
        return self.cluster.addresses["proxy-b"]

    @property
    def logs(self):
        return self.cluster.logs

    def namespace(self, tenant):
        return self.cluster.namespace(*self.links[tenant][:2])

    def pod(self, tenant):
        return self.pods.admin.get("pods", self.engines[tenant], self.namespace(tenant))

    def session(self, user):
        return pyhive_session(self.address, user, password=password_of(user))

    def await_engine(self, tenant):
        """Waits until the tenant has one engine, which is ready."""
        [row] = self.control.wait_ready(tenant, within_s=WITHIN_S)
        self.engines[tenant] = row["engine"]

    @functools.cached_property
    def files(self):
        """The files of this machine that hold what no tenant may read: keys of roles, logins of masters, the database and
        the users, and what the engine of `finance` has."""
        keys = self.cluster.keys
        uid = self.pod("finance")["metadata"]["uid"]
        launched = [it for it in (self.pods.folder / "kubelet" / uid).rglob("engine.toml") if it.is_file()]
        assert launched, f"the file of the engine with uid {uid} was not found"
        roles = [keys.file(it) for it in ("proxy", "master", "metadata-agent")]
        return [keys.root, *roles, self.cluster.folder / "agent-1.toml", self.folder / "users", self.pods.master, launched[0]]

    def secrets(self):
        """What no engine of `sales` may show. What is secret of `finance` is in its Secret alone."""
        keys = self.cluster.keys
        found = [it for role in ("proxy", "master", "metadata-agent") for it in secrets_of(keys.file(role)).values()]
        found += [line.split(":")[1] for line in (self.folder / "users").read_text().splitlines() if ":" in line]
        found += [self.pods.token, self.cluster.database.url, property_of("finance"), *map(password_of, USERS)]
        data = self.pods.admin.get("secrets", self.engines["finance"], self.namespace("finance"))["data"]
        of_engine = [PRIVATE.findall(base64.b64decode(it).decode(errors="replace")) for it in data.values()]
        assert any(of_engine), "the Secret of the engine has no secret"
        return found + [it for each in of_engine for it in each]

    def check_health(self):
        """A login, a query and a control statement work."""
        for tenant, user in TENANTS.items():
            with self.session(user) as session:
                assert rows(session, "SELECT 40 + 2 AS answer") == [{"answer": 42}]
                shown = rows(session, f"SHOW ENGINES {tenant}")
                assert [it["engine"] for it in shown] == [self.engines[tenant]], (self.engines, shown)
