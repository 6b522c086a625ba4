"""Clients that log in with a Kerberos ticket. Each takes the environment of `Kdc.of_client`. For the Python clients it becomes
that of this process while they log in."""

import contextlib
import os
import pathlib
import ssl

import thrift_sasl
from impala import dbapi as impyla
from py4j.java_gateway import JavaGateway
from pyhive import hive
from thrift.transport import TSocket, TSSLSocket

from harness import java
from harness.clients import ANSWER_WITHIN_S, close_impyla, session_keys, split
from harness.kdc import REALM
from harness.processes import environment, finished

# What makes Hadoop's classes, which the drivers use, look for a ticket.
CORE_SITE = """<configuration>
<property><name>hadoop.security.authentication</name><value>kerberos</value></property>
</configuration>
"""
HTTP_OPTIONS = ";transportMode=http;httpPath=cliservice"


@contextlib.contextmanager
def tickets(env):
    """The environment of this process, in which libkrb5 finds realm and tickets."""
    before = {name: os.environ.get(name) for name in env}
    os.environ.update(env)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.contextmanager
def pyhive_session(address, env, ca=None, service="hive", **settings):
    host, port = split(address)
    context = ca and ssl.create_default_context(cafile=ca)
    socket = TSSLSocket.TSSLSocket(host, port, ssl_context=context) if ca else TSocket.TSocket(host, port)
    socket.setTimeout(ANSWER_WITHIN_S * 1000)

    def sasl():
        return hive.get_installed_sasl(host=host, sasl_auth="GSSAPI", service=service)

    with tickets(env):
        connection = hive.connect(
            thrift_transport=thrift_sasl.TSaslClientTransport(sasl, "GSSAPI", socket), configuration=session_keys(settings)
        )
    try:
        yield connection
    finally:
        with contextlib.suppress(Exception):
            connection.close()


def pyhive_http(address, env):
    """A session over HTTP as PyHive makes it by itself, which has one token for all calls."""
    host, port = split(address)
    with tickets(env):
        return hive.connect(host=host, port=port, scheme="http", auth="KERBEROS", kerberos_service_name="HTTP")


@contextlib.contextmanager
def impyla_session(address, env, ca=None, http=False):
    """Over HTTP each call may need a ticket, unless it has the cookie."""
    host, port = split(address)
    tls = {"use_ssl": True, "ca_cert": str(ca), "verify_cert": True} if ca else {}
    transport = {"use_http_transport": True, "http_path": "cliservice"} if http else {}
    login = {"auth_mechanism": "GSSAPI", "kerberos_service_name": "HTTP" if http else "hive"}
    with tickets(env):
        connection = impyla.connect(host=host, port=port, timeout=120, **login, **tls, **transport)
        cursor = None
        try:
            cursor = connection.cursor()
            yield cursor
        finally:
            close_impyla(connection, cursor)


def curl(url, env, *options, ca=None):
    """Status, head and body of a request with curl."""
    tls = ["--cacert", ca] if ca else []
    command = ["curl", "-s", "-i", "--negotiate", "-u", ":", *tls, *options, url]
    done = finished(command, environment(env))
    assert done.returncode == 0, done.stderr
    # What the server answers to an `Expect: 100-continue` comes first.
    head, body = done.stdout.replace("HTTP/1.1 100 Continue\n\n", "").split("\n\n", 1)
    return int(head.split()[1]), head, body


def jdbc_query(http=False, more=""):
    """What a JDBC URL has behind the address."""
    return f";principal={'HTTP' if http else 'hive'}/localhost@{REALM}{HTTP_OPTIONS if http else ''}{more}"


def java_options(env):
    return [f"-Djava.security.krb5.conf={env['KRB5_CONFIG']}", "-Djavax.security.auth.useSubjectCredsOnly=false"]


def kyuubi_query(keytab, http=False, more=""):
    """The same for Kyuubi's driver, which gets the user's tickets with this `harness.kdc.Keytab`."""
    server = f"{'HTTP' if http else 'hive'}/localhost@{REALM}"
    user = f";kyuubiClientPrincipal={keytab.principal};kyuubiClientKeytab={keytab.path}"
    return f"{user};kyuubiServerPrincipal={server}{HTTP_OPTIONS if http else ''}{more}"


def classpath(env, jars):
    """These jars, behind the settings of Hadoop and before Hadoop's classes, which find the ticket."""
    site = pathlib.Path(env["KRB5_CONFIG"]).parent / "hadoop"
    site.mkdir(exist_ok=True)
    (site / "core-site.xml").write_text(CORE_SITE)
    return f"{site}:{jars}:{java.jars()}"


def beeline(address, statement, env, query, version="2.3"):
    jars = classpath(env, java.beeline_jars(version))
    command = ["java", *java.OPTIONS, *java_options(env), "-cp", jars, java.BEELINE]
    command += ["-u", f"jdbc:hive2://{address}/{query}", "--outputformat=tsv2", "-e", statement]
    done = finished(command, environment(env), java.WITHIN_S)
    return java.Output(done.returncode, done.stdout, done.stderr)


def jdbc(address, statement, env, query, driver):
    """The first column of the rows. The virtual machine is this call's own: a ticket belongs to a process."""
    with tickets(env):
        gateway = JavaGateway.launch_gateway(
            classpath=classpath(env, java.DRIVERS[driver].classpath()),
            javaopts=[*java.OPTIONS, *java_options(env)],
            die_on_exit=True,
            create_new_process_group=True,
            enable_auth=True,
        )
    try:
        of_driver = java.DRIVERS[driver]
        gateway.jvm.java.lang.Class.forName(of_driver.name)
        url = f"jdbc:{of_driver.scheme}://{address}/{query}"
        connection = gateway.jvm.java.sql.DriverManager.getConnection(url, "", "")
        found, rows = connection.createStatement().executeQuery(statement), []
        while found.next():
            rows.append(found.getString(1))
        connection.close()
        return rows
    finally:
        gateway.shutdown()
