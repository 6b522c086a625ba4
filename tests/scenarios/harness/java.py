"""The real BeeLine and the real Hive JDBC driver, as pyspark ships them."""

import atexit
import base64
import functools
import pathlib
import queue
import re
import shutil
import signal
import subprocess
import tempfile
import threading


@functools.cache
def jars():
    """Where the jars are; asked late, because the quick tier imports this file and has no pyspark."""
    import pyspark  # noqa: PLC0415

    return str(pathlib.Path(pyspark.__file__).parent / "jars" / "*")


# A small, quickly started virtual machine: these are clients of a few statements.
JAVA = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
DRIVER_SOURCE = pathlib.Path(__file__).with_name("Jdbc.java")
WITHIN_S = 90


class Output:
    def __init__(self, status, out, err):
        self.status, self.out, self.err = status, out, err

    def lines(self):
        lines = (re.sub(r"^(\. )+> ", "", line) for line in self.out.splitlines())
        return [line for line in lines if line.strip()]


def beeline_command(address, statements, user, query, output):
    url = f"jdbc:hive2://{address}/{query}"
    command = [*JAVA, "-cp", jars(), "org.apache.hive.beeline.BeeLine", "-u", url, "-n", user]
    command += [f"--outputformat={output}", "--showHeader=true", "--silent=false"]
    for statement in statements:
        command += ["-e", statement]
    return command


def beeline(address, *statements, user="admin", query="", output="tsv2", within_s=WITHIN_S):
    """Runs statements with BeeLine, which ends at the first error with a status that isn't 0."""
    done = subprocess.run(
        beeline_command(address, statements, user, query, output),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=within_s,
        check=False,
    )
    return Output(done.returncode, done.stdout, done.stderr)


def beeline_ok(*arguments, **options):
    done = beeline(*arguments, **options)
    assert done.status == 0, f"BeeLine ended with {done.status}\n{done.out}\n{done.err}"
    return done


def start_beeline(address, statement, user="admin", query=""):
    return subprocess.Popen(
        beeline_command(address, [statement], user, query, "tsv2"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def interrupt(process):
    process.send_signal(signal.SIGINT)


@functools.cache
def driver_classes():
    folder = tempfile.mkdtemp(prefix="enginehouse-jdbc.")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    subprocess.run(["javac", "-d", folder, "-cp", jars(), str(DRIVER_SOURCE)], check=True, timeout=60)
    return folder


class JdbcError(Exception):
    def __init__(self, sqlstate, code, message, kind):
        super().__init__(f"{kind}: {sqlstate} {code}: {message}")
        self.sqlstate, self.code, self.message, self.kind = sqlstate, code, message, kind


class Jdbc:
    """One connection of the Hive JDBC driver, in a process of its own that takes one command a line."""

    def __init__(self, address, user="admin", query=""):
        self.process = subprocess.Popen(
            [*JAVA, "-cp", f"{driver_classes()}:{jars()}", "Jdbc", f"jdbc:hive2://{address}/{query}", user],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            bufsize=1,
            start_new_session=True,
        )
        self.answers = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self._answer("connect")

    def _read(self):
        for line in self.process.stdout:
            self.answers.put(line.rstrip("\n"))
        self.answers.put("gone")

    def _answer(self, what, within_s=WITHIN_S):
        try:
            fields = self.answers.get(timeout=within_s).split("\t")
        except queue.Empty:
            raise AssertionError(f"the JDBC driver did not answer within {within_s} s: {what}") from None
        if fields[0] == "error":
            raise JdbcError(fields[1], int(fields[2]), decoded(fields[3]), fields[4])
        assert fields[0] == "ok", f"{what}: {fields}"
        return fields[1:]

    def _send(self, *fields):
        self.process.stdin.write("\t".join(fields) + "\n")

    def rows(self, statement, within_s=WITHIN_S):
        """Executes a statement; answers its rows as dictionaries of text, none if it has no result set."""
        names, _, data = self.result(statement, within_s=within_s)
        return [dict(zip(names, row, strict=True)) for row in data]

    def result(self, statement, parameters=(), within_s=WITHIN_S):
        """Executes a statement, one with parameters as PreparedStatement; answers the names of the columns, their types
        and the rows as lists of text, all of them empty if it has no result set."""
        if parameters:
            self._send("prepared", encoded(statement), *map(parameter, parameters))
        else:
            self._send("execute", encoded(statement))
        fields = self._answer(statement, within_s)
        names, types, *data = [[decoded(cell) for cell in field.split(",")] for field in fields] or [[], []]
        return names, types, data

    def limited(self, statement, seconds, within_s=WITHIN_S):
        self._send("limited", str(seconds), encoded(statement))
        return self._answer(statement, within_s)

    def refused(self, statement):
        try:
            got = self.rows(statement)
        except JdbcError as error:
            return error
        raise AssertionError(f"was not refused: {statement}\n{got}")

    def start(self, statement):
        self._send("start", encoded(statement))
        self._answer(f"start {statement}")

    def cancel(self):
        """Statement.cancel() of the one that was begun, from another thread."""
        self._send("cancel")
        self._answer("cancel")

    def end(self, within_s=WITHIN_S):
        """Waits for the statement that was begun; raises its error."""
        self._send("end")
        return self._answer("end", within_s)

    def close(self):
        try:
            self.process.stdin.close()
            self.process.wait(timeout=15)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            self.process.kill()
            self.process.wait(timeout=10)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def parameter(value):
    if value is None:
        return "-"
    return ("n" if isinstance(value, int) else "s") + encoded(str(value))


def encoded(text):
    return base64.b64encode(text.encode()).decode()


def decoded(text):
    return None if text == "-" else base64.b64decode(text).decode()
