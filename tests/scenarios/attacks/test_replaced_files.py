"""Rows H5 and H6: a file that cannot be used replaces nothing while a process runs, and is reported.

A users file is read again every 5 s. So its standalone, without engines and TLS, has had it since the first test of this file.
"""

import contextlib
import json
import re
import shutil
import signal
import ssl

import pytest
from thrift.transport.TTransport import TTransportException

from harness import doctor
from harness.attacked import password_of
from harness.certificates import Certificate
from harness.clients import open_pyhive, rows
from harness.fixtures import started
from harness.login_attempts import TRANSPORTS_AND_REST, log_in
from harness.processes import run
from harness.standalone import Standalone
from harness.tier import LONG
from harness.waiting import wait_until

READ_AGAIN_WITHIN_S = 30
# No login from it has failed, so none of H5 is delayed.
SOURCE = "127.0.141.1"
KEPT = "could not reload the TLS certificate; the one that was read before stays in use"
READ_AGAIN = "read the TLS certificate again; it is unchanged"
REMOVED, ADDED, USERS = "zoe", "mallory", ("admin", "ann")
SECRET = "hunter2"
BAD_USER = "carol"
BAD_LINE = f"{BAD_USER}:{SECRET}:analysts"


def replace(path, source, mode=0o600):
    """In one step, as a Secret is replaced."""
    new = path.with_name(f"{path.name}.new")
    shutil.copyfile(source, new)
    new.chmod(mode)
    new.rename(path)


def diagnosis(installation, name):
    """The verdict of the doctor in one check, and its findings as text."""
    done = run(["doctor", "--data-dir", installation.data, "--format", "json"])
    found = doctor.check(json.loads(done.stdout), name)
    return found["verdict"], json.dumps(found["findings"])


def test_h5_a_certificate_that_cannot_be_used_replaces_none(target, folder):
    """New connections verify the certificate that was read before, and open sessions continue."""
    presented, other = target.certificate, Certificate(folder, "other")
    kept = folder / "kept.crt", folder / "kept.key"
    replace(kept[0], presented.certificate)
    replace(kept[1], presented.key)
    verifying, der = ssl.create_default_context(cafile=kept[0]), ssl.PEM_cert_to_DER_cert(kept[0].read_text())
    half, nothing = folder / "half", folder / "nothing"
    half.write_bytes(kept[0].read_bytes()[:200])
    nothing.write_text("nothing\n")
    of_certificate, of_key = "tls.certificate_file", "tls.key_file"
    variants = {
        "it has expired": (presented.expired(folder / "expired"), kept[1], 0o600, of_certificate, "expired at 20"),
        "half of it": (half, kept[1], 0o600, of_certificate, "the certificate cannot be read"),
        "no PEM": (nothing, kept[1], 0o600, of_certificate, "there is no certificate"),
        "the key of another one": (kept[0], other.key, 0o600, of_key, "does not belong to the certificate"),
        "no PEM in place of the key": (kept[0], nothing, 0o600, of_key, "the private key cannot be read"),
        "a key that others can read": (kept[0], kept[1], 0o644, of_key, "can be read by others"),
    }
    target.logs.allow(f" WARN .*: {KEPT} error=")
    with target.session("alice") as session:
        try:
            for variant, (certificate, key, mode, named, reason) in variants.items():
                replace(presented.certificate, certificate)
                replace(presented.key, key, mode)
                # An operator who asks for a reload gets a line each time.
                target.standalone.program.send(signal.SIGHUP)
                reported = f' WARN .*: {KEPT} error="{named}: .*{reason}'
                wait_until(lambda: logged(target, reported), READ_AGAIN_WITHIN_S, f"{variant} is reported")
                for transport in TRANSPORTS_AND_REST:
                    with target.tls(SOURCE, verifying) as connection:
                        assert connection.getpeercert(binary_form=True) == der, variant
                        answer = log_in(transport, connection, "alice", password_of("alice"))
                    assert answer.accepted, (variant, transport, answer)
                assert rows(session, "SELECT 40 + 2 AS answer") == [{"answer": 42}], variant
                verdict, findings = diagnosis(target.standalone, "certificates")
                assert verdict == "problem" and reason in findings, (variant, findings)
        finally:
            replace(presented.certificate, kept[0], 0o644)
            replace(presented.key, kept[1])
            unchanged = len(logged(target, READ_AGAIN))
            target.standalone.program.send(signal.SIGHUP)
    wait_until(lambda: len(logged(target, READ_AGAIN)) > unchanged, READ_AGAIN_WITHIN_S, "the files can be used again")
    assert not logged(target, "replaced the TLS certificate")
    verdict, findings = diagnosis(target.standalone, "certificates")
    assert verdict == "warning" and "it expires at" in findings, findings


class Misedited:
    """A standalone whose users file has been replaced since it started: by one without its first user, with another user, and
    with a bad line."""

    def __init__(self, folder):
        self.folder = folder
        self.folder.mkdir()
        self.users = folder / "users"
        self.standalone = Standalone(folder / "standalone")
        self.bad_line = None

    def start(self):
        path = self.folder / "enginehouse.toml"
        path.write_text(f'[access]\nauthentication = "file"\nusers_file = "{self.users}"\n')
        for user in (REMOVED, *USERS):
            self.passwd(self.users, user)
        # From here on all lines of its log count.
        self.standalone.logs.begin()
        self.standalone.start("--config", path)
        new = self.folder / "new"
        for user in (*USERS, ADDED):
            self.passwd(new, user)
        lines = [*new.read_text().splitlines(), BAD_LINE]
        self.bad_line = len(lines)
        new.write_text("\n".join([*lines, ""]))
        replace(self.users, new)
        return self

    def passwd(self, file, user):
        done = run(["passwd", "--file", file, user], text=f"{password_of(user)}\n")
        assert done.returncode == 0, done.stderr

    def log_in(self, user):
        open_pyhive(self.standalone.address, user, password=password_of(user)).close()

    def is_known(self, user):
        with contextlib.suppress(TTransportException):
            self.log_in(user)
            return True
        return False

    def close(self):
        self.standalone.close()


@pytest.fixture(scope="module", autouse=True)
def misedited(workspace):
    yield from started(Misedited(workspace / "misedited"))


def test_h6_a_users_file_with_a_bad_line_replaces_none(misedited):
    """Its other lines do not count either. A corrected one counts within 5 s (long)."""
    installation, why = misedited.standalone, f"line {misedited.bad_line}: "
    reported = (
        f" WARN .*could not reload the users file; keeping the users that were read last error=.*{misedited.users}, {why}"
    )
    wait_until(lambda: logged(installation, reported), READ_AGAIN_WITHIN_S, "the bad line is reported")
    assert all(misedited.is_known(user) for user in (REMOVED, *USERS))
    assert not misedited.is_known(ADDED) and not misedited.is_known(BAD_USER)
    verdict, findings = diagnosis(installation, "users file")
    assert verdict == "problem" and why in findings and "a running one keeps the users" in findings, findings
    assert SECRET not in installation.logs.text() + findings
    if LONG:
        good = misedited.folder / "new"
        good.write_text(misedited.users.read_text().replace(BAD_LINE, ""))
        replace(misedited.users, good)
        wait_until(lambda: logged(installation, "read the users file "), READ_AGAIN_WITHIN_S, "the corrected file counts")
        assert not misedited.is_known(REMOVED) and all(misedited.is_known(user) for user in (*USERS, ADDED))
        assert diagnosis(installation, "users file")[0] == "ok"
    installation.logs.allow(reported)
    installation.logs.check()


def logged(installation, pattern):
    """The lines that match, since the test began."""
    return [line for _, line in installation.logs.since_begin() if re.search(pattern, line)]
