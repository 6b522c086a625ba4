"""Databases of a test's own, and database servers of its own that it may kill.

`PostgresDatabase` and `MariadbDatabase` have the same methods, so a scenario takes either: `url`, `rows(sql)`,
`close()`. By default they are made in the servers that `tests/run` started; with `server=` in one of the test's own.
They are read through drivers of their own, never through the product.
"""

import contextlib
import glob
import os
import pathlib
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import threading
import urllib.parse
import uuid

import pg8000.native
import psutil
import pymysql
from pymysql.constants import ER

from harness.ports import free_port
from harness.secret_scan import KEPT
from harness.server_process import KILLED_WITHIN_S, ServerProcess

CONNECT_WITHIN_S = 10
ANSWER_WITHIN_S = 30


def address_of(variable):
    """The URL of a shared server; without it a scenario fails, it is never skipped."""
    value = os.environ.get(variable)
    assert value, f"{variable} is not set: run tests/run, which starts the servers"
    return value


def text(value):
    """A value as text, so that no scenario depends on a driver's types; NULL is `None`."""
    if isinstance(value, bytes | bytearray):
        return value.decode()
    return None if value is None else str(value)


def open_postgres(url, name):
    at = urllib.parse.urlsplit(url)
    # One limit, for the connection and for each answer.
    return pg8000.native.Connection(at.username, host=at.hostname, port=at.port, database=name, timeout=ANSWER_WITHIN_S)


def open_mariadb(url, name):
    at = urllib.parse.urlsplit(url)
    limits = {"connect_timeout": CONNECT_WITHIN_S, "read_timeout": ANSWER_WITHIN_S, "write_timeout": ANSWER_WITHIN_S}
    return pymysql.connect(host=at.hostname, port=at.port, user=at.username, database=name, autocommit=True, **limits)


class Database:
    """A database that goes when it is closed. One connection, made when it is needed and again after it broke."""

    def __init__(self, server_url):
        self.server_url = server_url.rsplit("/", 1)[0]
        self.name = f"eh_{uuid.uuid4().hex[:12]}"
        self.url = f"{self.server_url}/{self.name}"
        self.lock = threading.Lock()
        self.connection = None
        self.on_server(f"CREATE DATABASE {self.name}")

    def rows(self, statement):
        """The rows of a statement, each a list of texts. A connection that broke is made again once."""
        with self.lock:
            for last in (False, True):
                if self.connection is None:
                    self.connection = self.open(self.name)
                try:
                    return [[text(it) for it in row] for row in self.ask(self.connection, statement)]
                except self.BROKEN:
                    self.drop_connection()
                    if last:
                        raise
        return []

    def at_one_moment(self, *statements):
        """The rows of each statement, all in one transaction of one snapshot, which is rolled back."""
        return self.rolled_back(self.SNAPSHOT, statements)

    def tried(self, *statements):
        """The same without a snapshot, so that a statement may change a row that others change meanwhile."""
        return self.rolled_back("BEGIN", statements)

    def rolled_back(self, begin, statements):
        with self.lock:
            if self.connection is None:
                self.connection = self.open(self.name)
            self.ask(self.connection, begin)
            try:
                return [[[text(it) for it in row] for row in self.ask(self.connection, it)] for it in statements]
            finally:
                self.ask(self.connection, "ROLLBACK")

    def disturb(self):
        """Ends every other connection to this database, whatever it is in the middle of."""
        for (id_,) in self.rows(self.OTHERS):
            self.end_connection(id_)

    def end_connection(self, id_):
        self.rows(self.END.format(id_))

    def drop_connection(self):
        connection, self.connection = self.connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.close()

    def on_server(self, statement):
        with contextlib.closing(self.open(self.SYSTEM)) as connection:
            self.ask(connection, statement)

    def dump(self):
        """table → its rows as text."""
        return {name: "\n".join(map(str, self.rows(f"SELECT * FROM {name}"))) for (name,) in self.rows(self.TABLES)}

    def close(self):
        KEPT.keep_rows(self)
        with self.lock:
            self.drop_connection()
        self.on_server(self.DROP.format(self.name))


class PostgresDatabase(Database):
    kind = "postgres"
    SYSTEM = "postgres"
    SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ"
    DROP = "DROP DATABASE IF EXISTS {} WITH (FORCE)"
    OTHERS = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    END = "SELECT pg_terminate_backend({})"
    TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
    BROKEN = (pg8000.native.InterfaceError, OSError)

    def __init__(self, server=None):
        super().__init__(server.url if server else address_of("EH_TEST_POSTGRES"))

    def open(self, name):
        return open_postgres(self.server_url, name)

    def dump(self):
        # One statement for all of them, because each test has a database.
        every = [f"SELECT '{it}', string_agg(line::text, chr(10)) FROM {it} AS line" for (it,) in self.rows(self.TABLES)]
        return {name: rows or "" for name, rows in self.rows(" UNION ALL ".join(every))} if every else {}

    def ask(self, connection, statement):
        return connection.run(statement) or []


class MariadbDatabase(Database):
    kind = "mariadb"
    SYSTEM = "mysql"
    SNAPSHOT = "START TRANSACTION WITH CONSISTENT SNAPSHOT"
    DROP = "DROP DATABASE IF EXISTS {}"
    OTHERS = "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
    END = "KILL {}"
    TABLES = "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()"
    BROKEN = (pymysql.err.OperationalError, pymysql.err.InterfaceError, OSError)

    def __init__(self, server=None):
        super().__init__(server.url if server else address_of("EH_TEST_MARIADB"))

    def open(self, name):
        return open_mariadb(self.server_url, name)

    def end_connection(self, id_):
        try:
            super().end_connection(id_)
        except pymysql.err.OperationalError as error:
            # One that has ended since is as good.
            if error.args[0] != ER.NO_SUCH_THREAD:
                raise

    def ask(self, connection, statement):
        with connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []


class SqliteDatabase:
    """The file of a standalone, read beside it: SQLite lets others read while it has the file."""

    kind = "sqlite"

    def __init__(self, path):
        self.path = pathlib.Path(path)

    def rows(self, statement):
        with contextlib.closing(self.open()) as connection:
            return [[text(it) for it in row] for row in connection.execute(statement)]

    def at_one_moment(self, *statements):
        with contextlib.closing(self.open()) as connection:
            connection.execute("BEGIN")
            return [[[text(it) for it in row] for row in connection.execute(statement)] for statement in statements]

    # A writer is alone.
    tried = at_one_moment

    def open(self):
        # Never made by a reader: that would be another database than the one that is meant.
        return sqlite3.connect(f"file:{self.path}?mode=rw", uri=True, timeout=10, isolation_level=None, check_same_thread=False)

    def disturb(self):
        """Holds the file's lock, so that no transaction can write; answers how to let it go."""
        connection = self.open()
        connection.execute("BEGIN IMMEDIATE")
        return connection.close

    def close(self):
        pass


class Server(ServerProcess):
    """A database server of a test's own: start, stop, kill -9, start again. Data goes when it is closed.

    Its folder is not below the test's, which only its owner may enter: neither server runs as root.
    """

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"enginehouse-{self.kind}.", dir="/var/tmp"))
        self.folder.chmod(0o755)
        shutil.chown(self.folder, self.user)
        self.port = free_port()
        self.make()

    @property
    def name(self):
        return self.kind

    def run(self, command):
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def answers(self):
        try:
            self.connect().close()
        except Exception:
            return False
        return True

    def close(self):
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


class PostgresServer(Server):
    """PostgreSQL; `fsync` is on, because a test that kills it wants to see what was kept."""

    kind = "postgres"
    user = "postgres"
    # SIGINT: ends sessions instead of waiting for them.
    stop_signal = signal.SIGINT

    @property
    def url(self):
        return f"postgres://postgres@127.0.0.1:{self.port}/postgres"

    @staticmethod
    def program(name):
        as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"] if os.getuid() == 0 else []
        return [*as_user, max(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"))]

    def make(self):
        self.run([*self.program("initdb"), "-D", self.folder / "data", "-U", "postgres", "-A", "trust", "--no-sync"])

    def command(self):
        options = f"-D {self.folder}/data -p {self.port} -h 127.0.0.1 -c unix_socket_directories="
        return [*self.program("postgres"), *options.split(), *"-c max_connections=100 -c shared_buffers=32MB".split()]

    def kill(self):
        """Its sessions are processes of their own, which would answer until they notice that it is gone."""
        processes = psutil.Process(self.pid).children(recursive=True) if self.is_running() else []
        super().kill()
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, KILLED_WITHIN_S)

    def connect(self):
        return open_postgres(self.url, "postgres")

    def database(self):
        return PostgresDatabase(self)


class MariadbServer(Server):
    kind = "mariadb"
    user = "mysql"

    @property
    def url(self):
        return f"mysql://root@127.0.0.1:{self.port}/"

    def make(self):
        options = f"--no-defaults --datadir={self.folder}/data --user=mysql --skip-test-db"
        self.run(["mariadb-install-db", *options.split(), "--auth-root-authentication-method=normal"])

    def command(self):
        files = f"--datadir={self.folder}/data --socket={self.folder}/socket --pid-file={self.folder}/pid"
        options = f"--no-defaults --user=mysql --port={self.port} --bind-address=127.0.0.1 --max-connections=100"
        return ["mariadbd", *options.split(), *files.split()]

    def connect(self):
        return open_mariadb(self.url, "mysql")

    def database(self):
        return MariadbDatabase(self)
