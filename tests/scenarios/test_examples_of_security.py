"""The how-tos of `docs/security.md`: their blocks are executed one after the other in an empty folder, as they are printed
but for the port and other addresses, with a `standalone` that listens on every address."""

import base64
import contextlib
import inspect
import os
import re
import shutil
import socket
import ssl
import sys

import pytest

from harness import ensemble, kubectl
from harness.cert_manager import CertManager, define
from harness.control_plane import Kubernetes
from harness.engines import Engines
from harness.how_tos import plain_blocks, sections
from harness.issuer import Issuer
from harness.java import OPTIONS, jars
from harness.kdc import Kdc
from harness.ports import free_port
from harness.processes import BINARY, REPOSITORY, Program, environment, finished
from harness.slapd import Slapd, group_entry, user_entry
from harness.tier import only_long
from harness.waiting import wait_until

WITHIN_S = 180
PORT = "10009"
PASSWORD = "correct-horse"
# A command that serves, after the variables that it gets.
SERVE = re.compile(r"((?:\w+=\S+ )*)enginehouse (standalone .*)")
END = "-----END CERTIFICATE-----\n"
DIRECTORY, ISSUER = "ldaps://directory.example:636", "https://issuer.example"
# What the block for ZooKeeper begins with.
ZOOKEEPERS = "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory"
PRINTED = {"sh": re.compile(r"^[|│ ]*42[|│ ]*$", re.MULTILINE), "python": re.compile(r"^\[\(42,\)\]$", re.MULTILINE)}


class Trial:
    """An empty folder, in which blocks are executed with the programs that they name."""

    def __init__(self, folder):
        self.folder = folder / "empty"
        self.folder.mkdir()
        self.programs = folder / "bin"
        self.programs.mkdir()
        (self.programs / "enginehouse").symlink_to(BINARY)
        beeline = self.programs / "beeline"
        beeline.write_text(f"#!/bin/sh\nexec java {' '.join(OPTIONS)} -cp '{jars()}' org.apache.hive.beeline.BeeLine \"$@\"\n")
        beeline.chmod(0o755)
        self.port = str(free_port())
        self.server = None
        self.directory, self.issuer = DIRECTORY, ISSUER
        # Variables that the machine of the reader would have.
        self.env = {}
        self.engines = Engines(self.folder / "enginehouse-data/engines")

    def execute(self, language, text):
        """Runs a block; answers what it prints. One that serves continues."""
        text = text.replace(PORT, self.port).replace(DIRECTORY, self.directory).replace(ISSUER, self.issuer)
        if serving := SERVE.match(text):
            variables = serving[1].replace("$PWD", str(self.folder)).split()
            self.serve(serving[2].split(), dict(it.split("=", 1) for it in variables))
            return ""
        env = environment({"PATH": f"{self.programs}:{os.environ['PATH']}"} | self.env)
        if language == "python":
            command = [sys.executable, "-c", text]
        else:
            # Each `passwd` asks for a password.
            command = ["sh", "-ec", re.sub(r"^enginehouse passwd", f"echo '{PASSWORD}' | \\g<0>", text, flags=re.MULTILINE)]
        done = finished(command, env, WITHIN_S, cwd=self.folder)
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def add_kubectl(self, cluster):
        """`harness.kubectl`, as the admin of that Kubernetes."""
        program = self.programs / "kubectl"
        variables = f"KUBECONFIG={cluster.kubeconfig()} EH_TEST_KUSTOMIZE={os.environ['EH_TEST_KUSTOMIZE']}"
        program.write_text(f'#!/bin/sh\n{variables} exec {sys.executable} {kubectl.__file__} "$@"\n')
        program.chmod(0o755)

    def serve(self, arguments, variables):
        self.server = Program("standalone", arguments, self.folder, self.env | variables).start()
        self.server.wait_ready()

    def close(self):
        try:
            if self.server and self.server.is_running():
                self.server.stop()
        finally:
            self.engines.end_all()


@pytest.fixture(scope="module")
def trial(workspace):
    folder = workspace / "examples-of-security"
    folder.mkdir()
    made = Trial(folder)
    yield made
    made.close()


@pytest.fixture(scope="module")
def served(trial):
    """The how-tos of certificates and users, executed."""
    for heading in ("certificates", "users and groups in a file"):
        for language, text in sections()[heading]:
            trial.execute(language, text)
    assert trial.server is not None and trial.server.is_running()
    return trial


def test_the_how_tos_lead_from_an_empty_folder_to_a_login_of_each_client(served):
    clients = sections()["clients"]
    text = "\n".join(text for _, text in clients)
    assert all(client in text for client in ("enginehouse sql", "pyhive", "impala", "beeline -u", "transportMode=http"))
    for language, text in clients:
        printed = served.execute(language, text)
        queries = text.count("SELECT")
        assert len(PRINTED[language].findall(printed)) == queries, f"{text}\n{printed}"


def test_a_wrong_password_and_another_certificate_log_in_nowhere(served):
    language, text = next(it for it in sections()["clients"] if "enginehouse sql" in it[1])
    for right, wrong in ((PASSWORD, "another password"), ("-u ann", "-u bob"), ("--ca server.crt", "--ca other.crt")):
        if wrong == "--ca other.crt":
            certificate = next(text for _, text in sections()["certificates"] if text.startswith("openssl"))
            served.execute("sh", certificate.replace("server.", "other."))
        assert right in text
        with pytest.raises(AssertionError, match="authentication failed|invalid peer certificate"):
            served.execute(language, text.replace(right, wrong))


def test_standalone_prints_the_two_commands_of_the_how_tos(trial, served):
    done = finished([BINARY, "standalone", "--listen", "0.0.0.0:0", "--data-dir", "other"], environment(), cwd=trial.folder)
    assert done.returncode == 1 and "trusts every user name" in done.stderr, done.stderr
    commands = [it.strip() for it in done.stderr.splitlines() if it.startswith("  ")]
    page = "\n".join(text for blocks in sections().values() for _, text in blocks).splitlines()
    host = re.search(r"/CN=(\S+)", commands[1])[1]
    assert [it.replace(host, "gateway.example") for it in commands] == [
        next(it for it in page if it.startswith(beginning)) for beginning in ("enginehouse passwd", "openssl req")
    ]
    # They make what a listener needs, as the message prints them.
    folder = trial.folder / "as-printed"
    folder.mkdir()
    shutil.copy(trial.folder / "settings.toml", folder)
    for command in commands:
        env = environment({"PATH": f"{trial.programs}:{os.environ['PATH']}"})
        done = finished(["sh", "-ec", f"echo secret | {command}"], env, cwd=folder)
        assert done.returncode == 0, done.stderr
    server = Program("standalone", ["standalone", "--config", "settings.toml", "--listen", "0.0.0.0:0"], folder).start()
    try:
        assert server.wait_ready().endswith("/;ssl=true")
    finally:
        server.stop()


def test_each_block_outside_of_the_how_tos_is_valid(trial, served, control):
    made = control.make("t_1")
    known = (REPOSITORY / "crates/enginehouse/Cargo.toml").read_text(), inspect.getsource(ensemble)
    kinds = []
    # The commands make the key files, which a configuration needs.
    for text in sorted(plain_blocks(), key=lambda it: not it.startswith("enginehouse")):
        kind = text.split()[0]
        kinds.append(kind)
        if kind == "enginehouse":
            trial.execute("sh", text)
        elif kind == "ALTER":
            control.execute(text.strip().rstrip(";"))
        elif kind == "[access]":
            (trial.folder / "access.toml").write_text(text)
            trial.execute("sh", "enginehouse config check --config access.toml")
        elif kind == "cargo":
            features = re.findall(r"--features (\S+)", text)
            assert features and all(f"\n{it} = [" in known[0] for it in features), text
        else:
            # A part of ZooKeeper's configuration: the tests' own server has the same lines, but for its values.
            assert all(line.split("=")[0] in known[1] for line in text.splitlines()), text
    control.drop(*made)
    assert sorted(set(kinds)) == ["ALTER", "[access]", "cargo", "enginehouse", ZOOKEEPERS], kinds


def test_the_how_to_of_ldap_leads_from_a_directory_to_a_login_of_its_users(folder):
    directory = Slapd(folder / "slapd", [user_entry("ann", PASSWORD), group_entry("dba", ["ann"])], password=PASSWORD)
    trial = Trial(folder)
    try:
        # For OpenLDAP's tools `localhost` is the name of the machine, which is not in the certificate.
        trial.directory = directory.start().tls_url.replace("localhost", "127.0.0.1")
        shutil.copy(directory.certificate.certificate, trial.folder / "directory.crt")
        of_certificate = next(text for _, text in sections()["certificates"] if text.startswith("openssl"))
        trial.execute("sh", of_certificate)
        password, search, settings, serve, doctor, login = (text for _, text in sections()["LDAP in ten minutes"])
        trial.execute("sh", password)
        assert "memberOf: cn=dba,ou=groups,dc=example" in trial.execute("sh", search)
        trial.execute("sh", settings)
        trial.execute("sh", serve)
        assert re.search(r"directory +1 of 1 can be used", trial.execute("sh", doctor))
        assert "0 rows" in trial.execute("sh", login)
        assert password_is_refused(trial, login)
    finally:
        trial.close()
        directory.close()


def password_is_refused(trial, login):
    with pytest.raises(AssertionError, match="authentication failed"):
        trial.execute("sh", login.replace(PASSWORD, "another password"))
    return True


def test_the_how_to_of_jwt_leads_from_an_issuer_to_a_login_of_its_users(folder):
    issuer = Issuer(folder / "issuer", {"ann": ["dba"]}, secret=PASSWORD)
    trial = Trial(folder)
    try:
        trial.issuer = issuer.start().url
        shutil.copy(issuer.certificate.certificate, trial.folder / "issuer.crt")
        of_certificate = next(text for _, text in sections()["certificates"] if text.startswith("openssl"))
        trial.execute("sh", of_certificate)
        metadata, token, claims, settings, serve, doctor, sql, rest = (text for _, text in sections()["JWT in ten minutes"])
        assert re.search(rf'"jwks_uri": ?"{issuer.url}/jwks"', trial.execute("sh", metadata))
        trial.execute("sh", token)
        assert '"groups":["dba"]' in trial.execute("sh", claims)
        trial.execute("sh", settings)
        trial.execute("sh", serve)
        assert re.search(r"tokens +3 keys of ", trial.execute("sh", doctor))
        assert "0 rows" in trial.execute("sh", sql)
        assert '"rows":[]' in trial.execute("sh", rest).replace(" ", "").replace("\n", "")
        (trial.folder / "ann.token").write_text(issuer.token("ann", "other"))
        with pytest.raises(AssertionError, match="authentication failed"):
            trial.execute("sh", sql)
        assert "authentication failed" in trial.execute("sh", rest)
    finally:
        trial.close()
        issuer.close()


def test_the_how_to_of_kerberos_leads_from_a_realm_to_a_login_of_its_users(folder):
    kdc = Kdc(folder / "kdc", users=[("ann", PASSWORD)], realms=("EXAMPLE.COM",), services=())
    trial = Trial(folder)
    trial.env = kdc.env | {"PATH": f"{trial.programs}:{os.environ['PATH']}", "KRB5CCNAME": f"FILE:{folder}/tickets"}
    trial.env["KRB5RCACHEDIR"] = str(folder)
    try:
        kdc.start()
        of_certificate = next(text for _, text in sections()["certificates"] if text.startswith("openssl"))
        trial.execute("sh", of_certificate)
        keys, listed, settings, serve, doctor, login = (text for _, text in sections()["Kerberos"])
        trial.execute("sh", keys)
        assert "HTTP/localhost@EXAMPLE.COM" in trial.execute("sh", listed)
        trial.execute("sh", settings)
        trial.execute("sh", serve)
        assert "principal=hive/_HOST@EXAMPLE.COM" in trial.server.printed()
        assert re.search(r"keytab +\S+/proxy.keytab can be used", trial.execute("sh", doctor))
        assert '"rows":[]' in trial.execute("sh", login).replace(" ", "").replace("\n", "")
        without = "kdestroy; " + login.splitlines()[1]
        assert "Negotiate ticket" in trial.execute("sh", without)
    finally:
        trial.close()
        kdc.close()


@only_long
def test_the_how_to_of_cert_manager_leads_to_a_login_also_after_a_renewal(folder):
    trial, cluster = Trial(folder), Kubernetes(folder / "kubernetes", scheduler=False)
    with contextlib.ExitStack() as closing:
        closing.callback(cluster.close)
        closing.callback(trial.close)
        define(cluster.start())
        closing.callback(CertManager(cluster, folder / "cert-manager", "enginehouse").start().close)
        trial.add_kubectl(cluster)
        shutil.copytree(REPOSITORY / "deploy", trial.folder / "deploy")
        blocks = (text.replace("gateway.example", "localhost") for _, text in sections()["certificates with cert-manager"])
        install, trust, login, with_an_issuer = blocks
        assert "condition met" in trial.execute("sh", install)
        trial.execute("sh", trust)
        first = write_certificate(trial, cluster)
        users, settings, serve = (text for _, text in sections()["users and groups in a file"][:3])
        trial.execute("sh", users)
        trial.execute("sh", settings.replace("[tls]", '[tls]\nreload = "1s"'))
        trial.execute("sh", serve)
        assert "0 rows" in trial.execute("sh", login)

        # As when its time has come: another key, signed by the same CA.
        cluster.admin.delete("secrets", "enginehouse-tls", "enginehouse")
        again = "kubectl -n enginehouse wait --for=condition=Ready certificate/enginehouse-tls --timeout=2m"
        wait_until(lambda: cluster.admin.find("secrets", "enginehouse-tls", "enginehouse"), WITHIN_S, "it is made again")
        trial.execute("sh", again)
        second = write_certificate(trial, cluster)
        assert first != second
        wait_until(lambda: presented(trial) == second, WITHIN_S, "the proxy presents the new certificate", 0.2)
        assert "0 rows" in trial.execute("sh", login)

        trial.execute("sh", with_an_issuer)
        certificate = cluster.admin.request(
            "GET", "/apis/cert-manager.io/v1/namespaces/enginehouse/certificates/enginehouse-tls"
        )
        assert certificate["spec"]["issuerRef"] == {"kind": "ClusterIssuer", "name": "company"}
        assert certificate["spec"]["dnsNames"] == ["localhost"]


def write_certificate(trial, cluster):
    """Writes what the Secret has to the files of the configuration, as a kubelet mounts it; returns the certificate."""
    data = cluster.admin.get("secrets", "enginehouse-tls", "enginehouse")["data"]
    for key, name in (("tls.key", "server.key"), ("tls.crt", "server.crt")):
        new = trial.folder / f"{name}.new"
        new.touch(mode=0o600)
        new.write_bytes(base64.b64decode(data[key]))
        new.rename(trial.folder / name)
    return ssl.PEM_cert_to_DER_cert((trial.folder / "server.crt").read_text().split("-----END")[0] + END)


def presented(trial):
    context = ssl.create_default_context(cafile=trial.folder / "ca.crt")
    with (
        socket.create_connection(("127.0.0.1", int(trial.port)), timeout=WITHIN_S) as connection,
        context.wrap_socket(connection, server_hostname="localhost") as tls,
    ):
        return tls.getpeercert(binary_form=True)
