"""Rows B1, B2, B5, B10, B11, B29 and B30: logins with a password or a name that is not right.

The answer to a failed login takes up to 5 s. So all attempts of this file begin at once, each from an address of its own, and
each test waits for its own answers.
"""

import concurrent.futures
import dataclasses
import itertools
import re
import threading
import time

import pytest
from impala_thrift_gen.TCLIService import ttypes
from thrift.Thrift import TMessageType, TType

from harness.attacked import password_of
from harness.login_attempts import HTTP, PLAIN_THRIFT, REST, SASL, TRANSPORTS_AND_REST, Answer, log_in
from harness.processes import run
from harness.thrift_messages import PROTOCOL, field, message, written
from harness.tier import some
from harness.waiting import wait_until

# A login may take 10 s, half of which its delay takes.
pytestmark = pytest.mark.alone

TEXT = "authentication failed"
MALFORMED = b"\x03\x00\x00\x00\x24the SASL PLAIN response is malformed"
# The victim of guessed passwords: no other user's failed logins are slowed by them.
VICTIM = "audrey"
GUESSES = 60
# The failures that lock a user out from an address; the lines that the audit has about an address in a minute.
LOCKOUT_FAILURES, AUDIT_LINES = 40, 10
# The delays of the first six failures are shorter.
SHORTER_DELAYS, LONGEST_DELAY_S = 6, 5 * 0.8
GUESSER = "127.0.129.1"
BEGUN_WITHIN_S = 60
# For the long variant. A login may take 10 s: few clients at a time until all addresses are locked out, since each password
# is read until then.
FLOOD, FLOODERS = 10_000, [f"127.0.229.{number}" for number in range(1, 21)]
FEW_CLIENTS, MANY_CLIENTS = 80, 400
# The count of a minute is logged in the minute after it.
COUNTED_WITHIN_S = 150


def refusal_of_plain_thrift():
    status = ttypes.TStatus(ttypes.TStatusCode.ERROR_STATUS, sqlState="28000", errorCode=0, errorMessage=TEXT)
    response = written(ttypes.TOpenSessionResp(status, PROTOCOL))
    return message("OpenSession", field(TType.STRUCT, 0, response), TMessageType.REPLY)


def refusal_over_http(content_type, body):
    return (
        f'HTTP/1.1 401 Unauthorized\r\nContent-Type: {content_type}\r\nWww-Authenticate: Basic realm="enginehouse"\r\n'
        f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    ).encode()


# The whole of what a client receives, whatever is wrong with its login.
REFUSALS = {
    SASL: b"\x03\x00\x00\x00\x15" + TEXT.encode(),
    PLAIN_THRIFT: refusal_of_plain_thrift(),
    HTTP: refusal_over_http("text/plain; charset=utf-8", f"{TEXT}\n"),
    REST: refusal_over_http("application/problem+json", f'{{"title":"{TEXT}","status":401,"sqlstate":"28000"}}'),
}


@dataclasses.dataclass
class Attempt:
    transport: str
    user: str
    password: str
    source: str
    answer: Answer | None = None
    seconds: float = 0.0
    begun: threading.Event = dataclasses.field(default_factory=threading.Event, repr=False)

    def make(self, target):
        began = time.monotonic()
        with target.tls(self.source) as connection:
            self.begun.set()
            self.answer = log_in(self.transport, connection, self.user, self.password)
        self.seconds = time.monotonic() - began
        return self

    def check(self, expected=None):
        assert self.answer.received == (expected or REFUSALS[self.transport]), self


# Row → logins that must fail, each over every transport.
LOGINS = {
    1: [("bob", "wrong"), ("bob", password_of("alice")), ("eve", "wrong"), ("eve", password_of("alice"))],
    2: [("alice", ""), ("admin", ""), ("eve", "")],
    5: [
        ("carol\0", password_of("carol")),
        ("carol\0x", password_of("carol")),
        ("\0carol", password_of("carol")),
        ("carol", password_of("carol") + "\0"),
        ("carol", password_of("carol") + "\0x"),
        ("carol", "\0" + password_of("carol")),
    ],
    10: [
        ("@admins", "wrong"),
        ("@ops", password_of("olga")),
        ("alice\n2026-11-23T09:00:00.000000Z ERROR b10 forged", password_of("alice")),
        ("alice\r", password_of("alice")),
        ("alice\x7f", password_of("alice")),
        ("alice\x85", password_of("alice")),
        ("x" * 256, password_of("alice")),
        ("x" * 10_000, password_of("alice")),
    ],
    11: [
        ("ALICE", password_of("alice")),
        ("Alice", password_of("alice")),
        # With a Cyrillic letter, in full width, with an invisible character, with an accent that is composed.
        ("\u0430lice", password_of("alice")),
        ("\uff41\uff4c\uff49\uff43\uff45", password_of("alice")),
        ("alice\u200b", password_of("alice")),
        ("alice\u0301", password_of("alice")),
        ("alice ", password_of("alice")),
        (" alice", password_of("alice")),
        ("ADMIN", password_of("admin")),
    ],
}


class Attempts:
    """All attempts of the file, by row; they run in threads of their own."""

    def __init__(self, target, pool):
        self.target = target
        self.rows = {
            row: [
                pool.submit(Attempt(transport, user, password, f"127.0.{100 + row}.{number}").make, target)
                for number, (transport, (user, password)) in enumerate(itertools.product(TRANSPORTS_AND_REST, logins), start=1)
            ]
            for row, logins in LOGINS.items()
        }
        guesses = [Attempt(HTTP, VICTIM, f"guess {number}", GUESSER) for number in range(GUESSES)]
        self.begun = [it.begun for it in guesses]
        self.guesses = [pool.submit(it.make, target) for it in guesses]
        self.right_password = pool.submit(self.log_in_after_guesses)

    def of_row(self, row):
        return [it.result() for it in self.rows[row]]

    def log_in_after_guesses(self):
        """The right password from where passwords are guessed. All of them are sent, and some are answered."""
        assert all(it.wait(BEGUN_WITHIN_S) for it in self.begun)
        answered = concurrent.futures.as_completed(self.guesses)
        for _ in range(SHORTER_DELAYS - 1):
            next(answered)
        return Attempt(HTTP, VICTIM, password_of(VICTIM), GUESSER).make(self.target)


@pytest.fixture(scope="module")
def attempts(shared_target):
    count = GUESSES + 1 + sum(len(TRANSPORTS_AND_REST) * len(logins) for logins in LOGINS.values())
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        yield Attempts(shared_target, pool)


def audit_lines(target, source):
    """The lines of the audit about failed logins from an address, without the counts."""
    return audit_lines_of(target.logs.text("enginehouse.log").splitlines(), source)


def audit_lines_of(lines, source):
    return [line for line in lines if 'audit: login failed event="login_failed"' in line and f" address={source} " in line]


def further_failures(lines, source):
    beginning = f'audit: further logins failed event="login_failed" address={source} count='
    return sum(int(line.partition(beginning)[2]) for line in lines if beginning in line)


def reason_of(target, attempt):
    (line,) = audit_lines(target, attempt.source)
    return re.search(r'reason="([^"]*)"', line)[1]


def test_b1_a_wrong_password_and_an_unknown_user_receive_the_same_bytes(target, attempts):
    for attempt in attempts.of_row(1):
        attempt.check()
        expected = "unknown user" if attempt.user == "eve" else "wrong password"
        assert reason_of(target, attempt) == expected, attempt
    assert not any(it in target.logs.text() for it in target.secrets), "a secret is in a log"


def test_b2_an_empty_password_is_refused_before_any_method_reads_it(target, attempts):
    """Neither is the user looked up: the audit has no name. No user can have an empty password."""
    for attempt in attempts.of_row(2):
        attempt.check()
        assert reason_of(target, attempt) == "no user name or password", attempt
    users = target.folder / "users"
    before = users.read_bytes()
    done = run(["passwd", "--file", users, "mallory"], text="\n")
    assert done.returncode == 1 and "the password must not be empty" in done.stderr, done
    assert users.read_bytes() == before


def test_b5_a_nul_in_a_name_or_password_ends_neither(target, attempts):
    """What is before the NUL would be right each time. SASL PLAIN separates its fields by it, so there is a field too many."""
    for attempt in attempts.of_row(5):
        attempt.check(MALFORMED if attempt.transport == SASL else None)
        if attempt.transport != SASL:
            expected = "no user name or password" if "\0" in attempt.user else "wrong password"
            assert reason_of(target, attempt) == expected, attempt


def test_b10_no_user_has_the_name_of_a_group_or_of_two_lines_or_of_10000_bytes(target, attempts):
    """The audit repeats none of the names, so none can forge a line."""
    for attempt in attempts.of_row(10):
        attempt.check()
        (line,) = audit_lines(target, attempt.source)
        assert 'user="" ' in line and 'reason="no user name or password"' in line, line
    assert "b10 forged" not in target.logs.text("enginehouse.log")


def test_b11_a_name_that_looks_like_another_one_is_another_user(target, attempts):
    for attempt in attempts.of_row(11):
        attempt.check()
        assert reason_of(target, attempt) == "unknown user", attempt


def guesses_from_one_address(target, request):
    """After 40 failures the right password is refused in the same words, from where they were guessed."""
    attempts = request.getfixturevalue("attempts")
    guesses = [it.result() for it in attempts.guesses]
    for guess in guesses:
        guess.check()
    slowed = sum(guess.seconds >= LONGEST_DELAY_S for guess in guesses)
    assert slowed >= GUESSES - SHORTER_DELAYS, sorted(guess.seconds for guess in guesses)
    right = attempts.right_password.result()
    right.check()
    assert right.seconds >= LONGEST_DELAY_S, right
    lines = audit_lines(target, GUESSER)
    assert len(lines) == AUDIT_LINES, lines
    assert all(f'user="{VICTIM}" ' in line and 'reason="wrong password"' in line for line in lines), lines


def guesses_from_20_addresses(target, _):
    """10,000 are refused and counted. Meanwhile the victim logs in."""
    begun, read, logins = len(target.logs.text("enginehouse.log")), LOCKOUT_FAILURES * len(FLOODERS), []
    for numbers, clients in ((range(read), FEW_CLIENTS), (range(read, FLOOD), MANY_CLIENTS)):
        with concurrent.futures.ThreadPoolExecutor(clients) as pool:
            guesses = [
                pool.submit(Attempt(HTTP, VICTIM, f"guess {number}", FLOODERS[number % len(FLOODERS)]).make, target)
                for number in numbers
            ]
            while not all(guess.done() for guess in guesses):
                logins.append(Attempt(SASL, VICTIM, password_of(VICTIM), "127.0.130.2").make(target))
                assert logins[-1].answer.accepted, logins[-1]
                concurrent.futures.wait(guesses, timeout=1)
            for guess in guesses:
                guess.result().check()

    def counted():
        lines = target.logs.text("enginehouse.log")[begun:].splitlines()
        return sum(len(audit_lines_of(lines, source)) + further_failures(lines, source) for source in FLOODERS)

    wait_until(lambda: counted() >= FLOOD, COUNTED_WITHIN_S, "all failures are counted", 1)
    assert counted() == FLOOD
    print(f"{FLOOD} guesses; {len(logins)} logins of the victim took at most {max(it.seconds for it in logins):.2f} s")


@pytest.mark.parametrize("guess", some([guesses_from_one_address, guesses_from_20_addresses], guesses_from_one_address))
def test_b29_guessed_passwords_are_slowed_locked_out_and_audited(target, request, guess):
    guess(target, request)


def test_b30_a_victim_locked_out_from_one_address_logs_in_from_another(target, attempts):
    attempts.right_password.result().check()
    for transport in TRANSPORTS_AND_REST:
        login = Attempt(transport, VICTIM, password_of(VICTIM), "127.0.130.1").make(target)
        assert login.answer.accepted, login
        assert login.seconds < LONGEST_DELAY_S, f"successful logins are slowed: {login}"
    assert target.execute("SHOW TENANTS", VICTIM), "a session of the victim has no rights"
