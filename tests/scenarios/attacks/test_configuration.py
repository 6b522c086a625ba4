"""Rows H1 to H4: no program starts with a configuration that would let others in or leave clients without protection."""

import itertools

import pytest

from harness.certificates import Certificate
from harness.processes import run
from harness.role_keys import RoleKeys

# A program may read its configuration, and do nothing else.
ENDS_WITHIN_S = 30
PROGRAMS = STANDALONE, PROXY, CONFIG_CHECK = "standalone", "proxy", "config check"
LOOPBACK = "127.0.0.1:0"
# The last one is no address of this machine: the address is refused before it is bound.
OFF_LOOPBACK = "0.0.0.0:0", "[::]:0", "192.0.2.1:0"
FILE = '[access]\nauthentication = "file"\nusers_file = "{folder}/users"\n'
TLS = '[tls]\nmode = "{mode}"\ncertificate_file = "{folder}/server.crt"\nkey_file = "{folder}/server.key"\n'


class Files:
    """A users file, a certificate with its key, and key files of the roles, which each program accepts."""

    def __init__(self, folder):
        self.folder = folder
        self.certificate = Certificate(folder, "server")
        self.users = folder / "users"
        done = run(["passwd", "--file", self.users, "admin"], text="secret\n")
        assert done.returncode == 0, done.stderr
        # Of a standalone it is in the data directory.
        self.data = folder / "data"
        self.data.mkdir(mode=0o700)
        keys = {STANDALONE: RoleKeys(self.data, "standalone"), PROXY: RoleKeys(folder, "enginehouse")}
        # A standalone has its root key in the folder of the others.
        keys[STANDALONE].root.rename(keys[STANDALONE].files / "root.key")
        self.keys = {it: keys[it].file("proxy") for it in keys}
        self.keys[CONFIG_CHECK] = self.keys[PROXY]
        self.assert_valid()

    def run(self, program, sections=FILE + TLS, listen=LOOPBACK):
        """Starts a program with these sections; a standalone with a file has no section of its own for keys and address."""
        sections = sections.format(folder=self.folder, mode="required")
        path = self.folder / "enginehouse.toml"
        if program == STANDALONE:
            path.write_text(sections)
            command = ["standalone", "--config", path, "--listen", listen, "--data-dir", self.data]
        else:
            path.write_text(
                f'{sections}[cluster]\nkeys = "{self.keys[program].parent}"\n[proxy]\nlisten = "{listen}"\n'
                '[zookeeper]\nconnect = "127.0.0.1:1"\n'
            )
            command = [*program.split(), "--config", path]
        return run(command, within_s=ENDS_WITHIN_S, cwd=self.folder)

    def assert_valid(self, **settings):
        done = self.run(CONFIG_CHECK, **settings)
        assert done.returncode == 0, done.stderr

    def assert_refused(self, variant, *expected, programs=PROGRAMS, **settings):
        """Each program ends at once, and its error has all of these texts."""
        for program in programs:
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
    assert [it.name for it in files.data.iterdir()] == ["keys"], "a standalone has begun to use its folder"


def test_h2_secrets_that_others_can_read_are_refused(files):
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
        it: f"cluster.keys: the key file {path} can be read by others\nHint: Run chmod 600 {path}."
        for it, path in files.keys.items()
    }
    for mode in modes:
        for path in set(files.keys.values()):
            path.chmod(mode)
        files.assert_refused(("cluster.keys", oct(mode)), texts)


def test_h3_keys_of_another_role_or_installation_are_refused(files, folder):
    other = RoleKeys(folder / "other", "staging")
    for path in set(files.keys.values()):
        for wrong, why in (
            (path.with_name("master.key"), "They are keys of the role master, and not of the role proxy."),
            (path.with_name("metadata-agent.key"), "They are keys of the role metadata-agent, and not of the role proxy."),
            (other.file("proxy"), 'They are keys of the installation "staging"; cluster.name is "'),
        ):
            good = path.read_bytes()
            path.write_bytes(wrong.read_bytes())
            programs = [it for it in PROGRAMS if files.keys[it] == path]
            files.assert_refused((path, wrong), f"cluster.keys: {path}: ", why, programs=programs)
            path.write_bytes(good)


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
