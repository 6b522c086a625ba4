"""Certificates of tests, made by openssl when a test runs: a committed one would expire."""

import subprocess

STORE_PASSWORD = "changeit"
THIS_HOST = "DNS:localhost,IP:127.0.0.1"
NEW = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2".split()


class Certificate:
    """A certificate that signs itself: its clients trust it itself."""

    def __init__(self, folder, name, names=THIS_HOST):
        self.certificate, self.key = folder / f"{name}.crt", folder / f"{name}.key"
        run(*NEW, "-subj", "/CN=localhost", "-addext", f"subjectAltName={names}",
            "-addext", "basicConstraints=critical,CA:FALSE", "-out", self.certificate, "-keyout", self.key)  # fmt: skip

    def expired(self, path):
        """Writes this certificate with another time: the second in which it is made."""
        run("openssl", "x509", "-in", self.certificate, "-signkey", self.key, "-days", "0", "-out", path)
        return path

    def encrypted_key(self, path):
        run("openssl", "pkey", "-in", self.key, "-aes256", "-passout", "pass:changeit", "-out", path)
        return path

    def java_store(self):
        """A trust store of Java with this certificate alone."""
        store = self.certificate.with_suffix(".p12")
        if store.exists():
            return store
        run("keytool", "-importcert", "-noprompt", "-alias", "gateway", "-file", self.certificate, "-keystore", store,
            "-storetype", "PKCS12", "-storepass", STORE_PASSWORD)  # fmt: skip
        return store


class Authority:
    """A CA: its clients trust the servers whose certificates it signs. Each has a name of its own."""

    def __init__(self, folder, name):
        self.name, self.certificate, self.key = name, folder / f"{name}.crt", folder / f"{name}.key"
        run(*NEW, "-subj", f"/CN={name}", "-addext", "basicConstraints=critical,CA:TRUE",
            "-out", self.certificate, "-keyout", self.key)  # fmt: skip

    def key_store(self, path, names=THIS_HOST):
        """Writes a server's private key, and its certificate behind it, in PEM; answers the path."""
        certificate = path.with_suffix(".crt")
        run(*NEW, "-subj", f"/CN=a server of {self.name}", "-addext", f"subjectAltName={names}",
            "-addext", "basicConstraints=critical,CA:FALSE", "-CA", self.certificate, "-CAkey", self.key,
            "-out", certificate, "-keyout", path)  # fmt: skip
        with open(path, "a") as store:
            store.write(certificate.read_text())
        return path


def run(*command):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{command[0]}: {done.stdout}\n{done.stderr}"
