"""BeeLine and the Hive JDBC driver 2.3, as pyspark ships them, BeeLine 3.1, and the drivers of `DRIVERS`, called by py4j."""

import concurrent.futures
import contextlib
import functools
import os
import pathlib
import re
import subprocess

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError


@functools.cache
def jars():
    """Where the jars are; asked late, because the quick tier imports this file and has no pyspark."""
    import pyspark  # noqa: PLC0415

    return str(pathlib.Path(pyspark.__file__).parent / "jars" / "*")


class Driver:
    """A JDBC driver: the variable with its jar's path (`tests/run.d/install.sh`), its class, and the scheme of its URLs."""

    def __init__(self, variable, name="org.apache.hive.jdbc.HiveDriver", scheme="hive2"):
        self.variable, self.name, self.scheme = variable, name, scheme

    def classpath(self):
        if self.variable is None:
            return jars()
        jar = os.environ.get(self.variable)
        assert jar, f"{self.variable} is not set: run tests/run, which installs it"
        return jar


DRIVERS = {
    "2.3": Driver(None),
    "3.1": Driver("EH_TEST_HIVE_JDBC_3"),
    "4.1": Driver("EH_TEST_HIVE_JDBC"),
    "Kyuubi": Driver("EH_TEST_KYUUBI_JDBC", "org.apache.kyuubi.jdbc.KyuubiHiveDriver", "kyuubi"),
}
BEELINE = "org.apache.hive.beeline.BeeLine"
# Its versions, with the variable that has the path of the jar.
BEELINES = {"2.3": None, "3.1": "EH_TEST_BEELINE_3"}
# A small, quickly started virtual machine: these are clients of a few statements.
OPTIONS = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
WITHIN_S = 90


class Output:
    def __init__(self, status, out, err):
        self.status, self.out, self.err = status, out, err

    def lines(self):
        lines = (re.sub(r"^(\. )+> ", "", line) for line in self.out.splitlines())
        return [line for line in lines if line.strip()]


def beeline_jars(version):
    """The jars of that BeeLine before those of pyspark, which have the rest that it needs."""
    if BEELINES[version] is None:
        return jars()
    jar = os.environ.get(BEELINES[version])
    assert jar, f"{BEELINES[version]} is not set: run tests/run, which installs it"
    return f"{jar}:{DRIVERS[version].classpath()}:{jars()}"


def start_beeline(address, *statements, user="admin", query="", output="tsv2", password=None, version="2.3"):
    command = ["java", *OPTIONS, "-cp", beeline_jars(version), BEELINE]
    command += ["-u", f"jdbc:hive2://{address}/{query}", "-n", user, *(["-p", password] if password else [])]
    command += [f"--outputformat={output}", "--showHeader=true", "--silent=false"]
    for statement in statements:
        command += ["-e", statement]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, **pipes, text=True, start_new_session=True)


def beeline(*arguments, **options):
    """Runs statements with BeeLine, which ends at the first error with a status that isn't 0."""
    with start_beeline(*arguments, **options) as process:
        try:
            out, err = process.communicate(timeout=WITHIN_S)
        finally:
            process.kill()
    return Output(process.returncode, out, err)


def beeline_ok(*arguments, **options):
    done = beeline(*arguments, **options)
    assert done.status == 0, f"BeeLine ended with {done.status}\n{done.out}\n{done.err}"
    return done


@functools.cache
def java_sql(driver):
    """The package of a virtual machine that serves all connections of this process with that driver, and ends with it."""
    gateway = JavaGateway.launch_gateway(
        classpath=DRIVERS[driver].classpath(),
        javaopts=OPTIONS,
        die_on_exit=True,
        create_new_process_group=True,
        enable_auth=True,
    )
    gateway.jvm.java.lang.Class.forName(DRIVERS[driver].name)
    return gateway.jvm.java.sql


class JdbcError(Exception):
    """An `SQLException` of the driver."""

    def __init__(self, exception):
        self.kind = exception.getClass().getSimpleName()
        self.sqlstate, self.code, self.message = exception.getSQLState(), exception.getErrorCode(), exception.getMessage()
        super().__init__(f"{self.kind}: {self.sqlstate} {self.code}: {self.message}")


class Jdbc:
    """One connection of a driver of `DRIVERS`. Its calls are made in a thread of its own, so that each has a deadline."""

    def __init__(self, address, user="admin", query="", password="", driver="2.3"):
        self.thread = concurrent.futures.ThreadPoolExecutor(1)
        self.statement = self.execution = None
        self.sql = java_sql(driver)
        connect = self.sql.DriverManager.getConnection
        url = f"jdbc:{DRIVERS[driver].scheme}://{address}/{query}"
        self.connection = answer(self.thread.submit(connect, url, user, password))

    def rows(self, statement):
        """Executes a statement; answers its rows as dictionaries of text, none if it has no result set."""
        names, _, data = self.result(statement)
        return [dict(zip(names, row, strict=True)) for row in data]

    def result(self, statement, parameters=()):
        """Executes a statement, one with parameters as PreparedStatement; answers the names of the columns, their types
        and the rows as lists of text, all of them empty if it has no result set."""
        return answer(self.thread.submit(self.execute, statement, parameters))

    def execute(self, text, parameters):
        statement = self.connection.prepareStatement(text) if parameters else self.connection.createStatement()
        try:
            for at, value in enumerate(parameters, start=1):
                if value is None:
                    statement.setNull(at, self.sql.Types.VARCHAR)
                elif isinstance(value, int):
                    statement.setLong(at, value)
                else:
                    statement.setString(at, value)
            if not (statement.execute() if parameters else statement.execute(text)):
                return [], [], []
            result = statement.getResultSet()
            described = result.getMetaData()
            columns = range(1, described.getColumnCount() + 1)
            names, types = ([kind(at) for at in columns] for kind in (described.getColumnLabel, described.getColumnTypeName))
            rows = []
            while result.next():
                rows.append([result.getString(at) for at in columns])
            return names, types, rows
        finally:
            statement.close()

    def refused(self, statement):
        try:
            got = self.rows(statement)
        except JdbcError as error:
            return error
        raise AssertionError(f"was not refused: {statement}\n{got}")

    def start(self, statement, timeout_s=0):
        """Begins to execute a statement; `timeout_s` is for `Statement.setQueryTimeout`."""
        self.statement = self.connection.createStatement()
        self.statement.setQueryTimeout(timeout_s)
        self.execution = self.thread.submit(self.statement.execute, statement)

    def cancel(self):
        """`Statement.cancel()` of the one that was begun, from another thread."""
        self.statement.cancel()

    def end(self, within_s):
        """Waits for the statement that was begun; raises its error."""
        return answer(self.execution, within_s)

    def close(self):
        with contextlib.suppress(JdbcError):
            answer(self.thread.submit(self.connection.close))
        self.thread.shutdown(wait=False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def answer(call, within_s=WITHIN_S):
    try:
        return call.result(within_s)
    except Py4JJavaError as error:
        raise JdbcError(error.java_exception) from None
