"""Rows H1, H2 and H4: no program starts with a configuration that would let others in or leave clients without protection."""

import itertools
import uuid

import pytest

from harness.certificates import Certificate
from harness.processes import run

# A program may read its configuration, and do nothing else.
ENDS_WITHIN_S = 30
PROGRAMS = STANDALONE, PROXY, CONFIG_CHECK = "standalone", "proxy", "config check"
LOOPBACK = "127.0.0.1:0"
# The last one is no address of this machine: the address is refused before it is bound.
OFF_LOOPBACK = "0.0.0.0:0", "[::]:0", "192.0.2.1:0"
FILE = '[access]\nauthentication = "file"\nusers_file = "{folder}/users"\n'
TLS = '[tls]\nmode = "{mode}"\ncertificate_file = "{folder}/server.crt"\nkey_file = "{folder}/server.key"\n'


class Files:
    """A users file, a certificate with its key and a cluster secret, which each program accepts."""

    def __init__(self, folder):
        self.folder = folder
        self.certificate = Certificate(folder, "server")
        self.users = folder / "users"
        done = run(["passwd", "--file", self.users, "admin"], text="secret\n")
        assert done.returncode == 0, done.stderr
        # Of a standalone it is in the data directory.
        self.data = folder / "data"
        self.data.mkdir(mode=0o700)
        self.secrets = {STANDALONE: self.data / "cluster.secret", PROXY: folder / "cluster.secret"}
        self.secrets[CONFIG_CHECK] = self.secrets[PROXY]
        for secret in set(self.secrets.values()):
            secret.touch(mode=0o600)
            secret.write_text(uuid.uuid4().hex * 2)
        self.assert_valid()

    def run(self, program, sections=FILE + TLS, listen=LOOPBACK):
        """Starts a program with these sections; a standalone with a file has no section of its own for secret and address."""
        sections = sections.format(folder=self.folder, mode="required")
        path = self.folder / "enginehouse.toml"
        if program == STANDALONE:
            path.write_text(sections)
            command = ["standalone", "--config", path, "--listen", listen, "--data-dir", self.data]
        else:
            path.write_text(
                f'{sections}[cluster]\nsecret_file = "{self.secrets[program]}"\n[proxy]\nlisten = "{listen}"\n'
                '[zookeeper]\nconnect = "127.0.0.1:1"\n'
            )
            command = [*program.split(), "--config", path]
        return run(command, within_s=ENDS_WITHIN_S, cwd=self.folder)

    def assert_valid(self, **settings):
        done = self.run(CONFIG_CHECK, **settings)
        assert done.returncode == 0, done.stderr

    def assert_refused(self, variant, *expected, **settings):
        """Each program ends at once, and its error has all of these texts."""
        for program in PROGRAMS:
            done = self.run(program, **settings)
            assert (done.returncode, done.stdout) == (1, ""), (variant, program, done)
            for text in expected:
                text = text[program] if isinstance(text, dict) else text
                assert text in done.stderr, (variant, program, text, done.stderr)


@pytest.fixture
def files(folder):
    return Files(folder)


def for_programs(standalone, others):
    return {STANDALONE: standalone, PROXY: others, CONFIG_CHECK: others}


def test_h1_names_or_passwords_in_the_clear_are_for_loopback_only(files):
    trusting = for_programs("standalone trusts every user name", 'authentication = "none" trusts every user name')
    in_clear = for_programs("standalone receives passwords unencrypted", "clients send their passwords unencrypted")
    variants = {
        "the default": ("", trusting),
        "none": ('[access]\nauthentication = "none"\n', trusting),
        "none inside TLS": ('[access]\nauthentication = ["none"]\n' + TLS, trusting),
        "passwords without TLS": (FILE, in_clear),
        "passwords with TLS that is off": (FILE + TLS.replace("{mode}", "off"), in_clear),
    }
    for sections, _ in variants.values():
        files.assert_valid(sections=sections, listen=LOOPBACK)
    for (variant, (sections, why)), listen in itertools.product(variants.items(), OFF_LOOPBACK):
        keys = ["access.", "tls.mode"] if why is in_clear else ["access."]
        named = for_programs(f"not on {listen}\n", f"proxy.listen is {listen}\n")
        files.assert_refused((variant, listen), why, named, *keys, sections=sections, listen=listen)
    assert [it.name for it in files.data.iterdir()] == ["cluster.secret"], "a standalone has begun to use its folder"


def test_h2_secrets_that_others_can_read_are_refused(files):
    """The error names the key; a standalone has none for its cluster secret."""
    modes = (0o644, 0o640, 0o604, 0o660, 0o601)
    for path, key, what in (
        (files.certificate.key, "tls.key_file", "private key"),
        (files.users, "access.users_file", "users file"),
    ):
        for mode in modes:
            path.chmod(mode)
            files.assert_refused(
                (key, oct(mode)), f"{key}: the {what} {path} can be read by others\nHint: Run chmod 600 {path}."
            )
        path.chmod(0o600)
    texts = {
        it: f"the cluster secret {path} can be read by others\nHint: Run chmod 600 {path}."
        for it, path in files.secrets.items()
    }
    for mode in modes:
        for secret in set(files.secrets.values()):
            secret.chmod(mode)
        files.assert_refused(("cluster.secret_file", oct(mode)), texts)
    files.assert_refused("cluster.secret_file", for_programs("cluster secret", "cluster.secret_file: "))


def test_h4_a_certificate_that_cannot_be_used_is_refused(files, folder):
    own, other = files.certificate, Certificate(folder, "other")
    nothing, half = folder / "nothing", folder / "half"
    nothing.write_text("nothing\n")
    half.write_bytes(own.certificate.read_bytes()[:200])
    of_certificate, of_key = "tls.certificate_file", "tls.key_file"
    variants = {
        "the key of another certificate": (own.certificate, other.key, of_key, "does not belong to the certificate"),
        "the certificate of another key": (other.certificate, own.key, of_key, "does not belong to the certificate"),
        "no certificate": (folder / "absent", own.key, of_certificate, "cannot read the certificate"),
        "no key": (own.certificate, folder / "absent", of_key, "cannot read the private key"),
        "an expired certificate": (own.expired(folder / "expired"), own.key, of_certificate, "expired at 20"),
        "no PEM in place of the certificate": (nothing, own.key, of_certificate, "there is no certificate"),
        "half a certificate": (half, own.key, of_certificate, "the certificate cannot be read"),
        "no PEM in place of the key": (own.certificate, nothing, of_key, "the private key cannot be read"),
        "an encrypted key": (
            own.certificate,
            own.encrypted_key(folder / "encrypted"),
            of_key,
            "the private key cannot be read",
        ),
        "the files exchanged": (own.key, own.certificate, of_certificate, "there is no certificate"),
    }
    # Its mode is another reason to refuse a key.
    for it in (nothing, own.certificate):
        it.chmod(0o600)
    for variant, (certificate, key, named, reason) in variants.items():
        tls = f'[tls]\nmode = "required"\ncertificate_file = "{certificate}"\nkey_file = "{key}"\n'
        files.assert_refused(variant, f"{named}: ", reason, sections=FILE + tls)
