"""Rows B3, B4 and B6 to B9: names that change a search, and directories that are not the one that was meant."""

import contextlib
import socket
import threading

import pytest

from harness.attacked_gateway import AttackedGateway
from harness.clients import pyhive_session, split
from harness.login_attempts import TRANSPORTS_AND_REST, log_in
from harness.slapd import GROUPS, USERS, Slapd, group_entry, password_of, user_entry

# A login may take 10 s, half of which its delay takes.
pytestmark = pytest.mark.alone

FAILED, AWAY = "authentication failed", "the directory does not respond"
USER_NAMES = ("alice", "bob")
ENTRIES = [
    # Two entries that a search for the department finds.
    *(user_entry(user, more="departmentNumber: twins\n") for user in USER_NAMES),
    f"\ndn: ou=admins,{USERS}\nobjectClass: organizationalUnit\nou: admins\n",
    group_entry("analysts", ["alice"]),
]


@pytest.fixture(scope="module")
def directory(workspace):
    it = Slapd(workspace / "attacked-directory", ENTRIES)
    try:
        yield it.start()
    finally:
        it.close()


class Gateway(AttackedGateway):
    """Its users are those of a directory."""

    def __init__(self, folder, section):
        super().__init__(folder, "ldap", section)
        self.sources = iter(range(1, 250))

    def log_in(self, transport, user, password):
        """Each login comes from an address of its own: failures are counted by address."""
        source = f"127.0.140.{next(self.sources)}"
        with socket.create_connection(split(self.standalone.address), timeout=60, source_address=(source, 0)) as connection:
            return log_in(transport, connection, user, password)

    def refuses(self, user, password, text=FAILED, transports=TRANSPORTS_AND_REST):
        for transport in transports:
            answer = self.log_in(transport, user, password)
            assert not answer.accepted and text in answer.text, (transport, user, answer)

    def accepts(self, user):
        answer = self.log_in(TRANSPORTS_AND_REST[0], user, password_of(user))
        assert answer.accepted, answer


@contextlib.contextmanager
def gateway(folder, section, *allowed):
    """Afterwards it serves as before, and users of the directory too, unless it is one that is not used."""
    made = Gateway(folder, section)
    made.standalone.logs.allow(*allowed)
    try:
        yield made
        alice = pyhive_session(made.standalone.address, "alice", password=password_of("alice"))
        made.check_health(*([] if AWAY in allowed else [alice]))
        text = made.standalone.logs.text()
        assert not any(password_of(user) in text for user in USER_NAMES), "a password is in a log"
    finally:
        made.standalone.close()


def test_b3_a_name_is_no_part_of_a_filter(directory, folder):
    with gateway(folder, directory.settings()) as made:
        made.accepts("alice")
        made.refuses("*)(uid=*", password_of("alice"))
        for name in ("*", "ali*", "alice)(|(uid=*", "alice)(!(uid=x)", "\\61lice", "(alice)", "&(uid=alice)"):
            made.refuses(name, password_of("alice"), transports=TRANSPORTS_AND_REST[:1])


def test_b4_a_name_is_no_part_of_a_dn(directory, folder):
    pattern = {"bind_pattern": f"uid={{user}},{USERS}", "user_base": None}
    with gateway(folder, directory.settings(**pattern)) as made:
        made.accepts("alice")
        for name in (f"alice,{USERS}", "alice,ou=admins", "alice+cn=alice", "\\61lice", "alice\\", '"alice"', "#616c696365"):
            made.refuses(name, password_of("alice"), transports=TRANSPORTS_AND_REST[:1])
            made.refuses(name, password_of("alice"), transports=TRANSPORTS_AND_REST[2:3])


def test_b6_a_user_who_is_found_twice_is_refused(directory, folder):
    section = directory.settings(user_filter="(|(uid={user})(departmentNumber={user}))")
    with gateway(folder, section, "the directory has several entries for one user name") as made:
        made.accepts("alice")
        for user in USER_NAMES:
            made.refuses("twins", password_of(user), transports=TRANSPORTS_AND_REST[:2])


def test_b7_a_referral_is_not_followed(directory, folder):
    with listener() as other:
        refers = "objectClass: referral\nobjectClass: extensibleObject"
        directory.change(
            f"dn: uid=mallory,{USERS}\nchangetype: add\n{refers}\nuid: mallory\n"
            f"ref: ldap://127.0.0.1:{other.port}/uid=mallory,{USERS}\n"
        )
        try:
            with gateway(folder, directory.settings(group_base=GROUPS)) as made:
                made.refuses("mallory", "any password")
                made.accepts("alice")
            pattern = {"bind_pattern": f"uid={{user}},{USERS}", "user_base": None}
            (folder / "by-pattern").mkdir()
            with gateway(folder / "by-pattern", directory.settings(**pattern)) as made:
                made.refuses("mallory", "any password")
        finally:
            directory.change(f"dn: uid=mallory,{USERS}\nchangetype: delete\n")
        assert other.accepted == 0


class Listener:
    def __init__(self):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.accepted = 0
        self.thread = threading.Thread(target=self.accept, daemon=True)
        self.thread.start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.socket.accept()
                self.accepted += 1
                connection.close()


@contextlib.contextmanager
def listener():
    it = Listener()
    try:
        yield it
    finally:
        it.socket.shutdown(socket.SHUT_RDWR)
        it.socket.close()
        it.thread.join(10)


def test_b8_no_password_is_sent_if_start_tls_is_refused(folder):
    """As by an attacker in between who removes it."""
    plain = Slapd(folder / "without-tls", ENTRIES, tls=False).start()
    try:
        with gateway(folder, plain.settings(plain.url, start_tls=True), AWAY) as made:
            made.refuses("alice", password_of("alice"), AWAY)
        assert plain.binds() == []
    finally:
        plain.close()


def test_b9_no_password_is_sent_to_a_directory_with_another_name_in_its_certificate(folder):
    other = Slapd(folder / "another-name", ENTRIES, names="DNS:directory.example").start()
    try:
        for number, section in enumerate((other.settings(), other.settings(other.url, start_tls=True))):
            (folder / str(number)).mkdir()
            with gateway(folder / str(number), section, AWAY) as made:
                made.refuses("alice", password_of("alice"), AWAY)
        assert other.binds() == []
    finally:
        other.close()
