"""C1 to C4: acting for another user. Only a rule of `access.impersonation` permits it, at the opening of a session, by any
spelling; a refusal has one text, whatever its reason."""

import urllib.parse

import pytest

from harness.transports import TRANSPORTS, Http, Refused, Sasl

SPELLINGS = [
    "hive.server2.proxy.user",
    "Hive.Server2.Proxy.User",
    "HIVE.SERVER2.PROXY.USER",
    "set:hive.server2.proxy.user",
    "set:hiveconf:hive.server2.proxy.user",
    "SET:HIVECONF:Hive.Server2.Proxy.User",
    "set:hivevar:hive.server2.proxy.user",
    "set:hivevar:hiveconf:hive.server2.proxy.user",
    "set:system:hive.server2.proxy.user",
    "hiveconf:hive.server2.proxy.user",
    "set:metaconf:hive.server2.proxy.user",
    "sparkconf:hive.server2.proxy.user",
    " set:hiveconf: hive.server2.proxy.user ",
    "\tset:hiveconf:hive.server2.proxy.user\n",
    "kyuubi.session.proxy.user",
    "Kyuubi.Session.Proxy.User",
    "set:kyuubi.session.proxy.user",
    "set:hiveconf:kyuubi.session.proxy.user",
    "set:hivevar:kyuubi.session.proxy.user",
    "hiveconf:kyuubi.session.proxy.user",
]
# Parameters of the URL, with `{user}`.
QUERIES = ["doAs={user}", "doas={user}", "DOAS={user}", "do%41s={user}", "x=y&doAs={user}&z"]
# Attempts without a rule: superset may act for @analysts only, and carol for no user.
FORBIDDEN = [("carol", "alice"), ("carol", "bob"), ("superset", "bob"), ("superset", "etl")]
UNKNOWN = ["eve", "Alice", "ALICE", "alic\u0435", "alice\u200b", "@analysts", "analysts", "*", "a" * 255, "a" * 256, "\x1beve"]
# An admin, an operator by a group, and an auditor.
PROTECTED = ["admin", "olga", "audrey"]
HINT = "Hint: An admin adds a rule to access.impersonation. Admins, operators and auditors cannot be impersonated."


def text(login, user, detail=""):
    return f'user "{login}" is not allowed to impersonate "{user}"\n' + (detail and f"Detail: {detail}\n") + HINT


def opening(connection, **settings):
    """The status of an OpenSession that names a user by a setting; None if the session was opened."""
    opened = connection.try_open(**settings)
    return None if opened.sessionHandle else (opened.status.sqlState, opened.status.errorMessage)


def refusal(open_connection, *named):
    """The text with which a login on behalf of another user is refused."""
    with pytest.raises(Refused) as failed, open_connection(*named) as connection:
        connection.open()
    return failed.value.args


def runs_as(connection, session):
    """The user that an engine and the rights see."""
    [(user,)] = connection.rows(session, "SELECT current_user")
    tenants = [row[0] for row in connection.rows(session, "SHOW TENANTS")]
    return user, tenants


def test_c1_every_spelling_of_another_user_needs_a_rule(target):
    """By settings of OpenSession, SASL's authorization id and `doAs`: 28000 without a rule, and the rule's target with one. By
    SET and `confOverlay`: 28000, because the user of an open session is fixed."""
    for transport, connect in TRANSPORTS.items():
        with connect(target, "carol") as carol, connect(target, "superset") as superset:
            for key in SPELLINGS:
                for login, user in FORBIDDEN:
                    received = opening(carol if login == "carol" else superset, **{key: user})
                    assert received == ("28000", text(login, user)), (transport, key, login, user)
                session = superset.open(**{key: "alice"})
                assert runs_as(superset, session) == ("alice", ["sales"]), (transport, key)
                superset.close_session(session)
    for login, user in FORBIDDEN:
        assert text(login, user) in refusal(Sasl, target, login, user)[0], (login, user)
    with Sasl(target, "superset", "alice") as connection:
        assert runs_as(connection, connection.open()) == ("alice", ["sales"])
    for query in QUERIES:
        for login, user in FORBIDDEN:
            assert refusal(Http, target, login, query.format(user=user)) == (401, f"{text(login, user)}\n"), (
                query,
                login,
                user,
            )
        with Http(target, "superset", query.format(user="alice")) as connection:
            assert runs_as(connection, connection.open()) == ("alice", ["sales"]), query
    for transport, connect in TRANSPORTS.items():
        check_open_session(target, transport, connect)
    check_audit(target)


def check_open_session(target, transport, connect):
    """A statement changes the user of a session neither by itself nor by its own settings."""
    detail = "The user of a session is named when the session is opened."
    with connect(target, "superset") as superset, connect(target, "carol") as carol:
        for login, connection in ("superset", superset), ("carol", carol):
            session = connection.open()
            for key in SPELLINGS:
                bare = key.strip().replace(": ", ":")
                attempts = [
                    (f"SET {bare}=alice", None),
                    (f"set {bare} = 'alice' ;", None),
                    (f'/* */ SET\n{bare}=\n"alice"', None),
                    ("SHOW TENANTS", {key: "alice"}),
                    ("SELECT 1", {key: "alice"}),
                ]
                for statement, overlay in attempts:
                    executed = connection.execute(session, statement, overlay)
                    received = (executed.status.sqlState, executed.status.errorMessage, executed.operationHandle)
                    assert received == ("28000", text(login, "alice", detail), None), (transport, login, statement, overlay)
        # What is no SET of a session's key is the engine's, and changes nothing here.
        for statement in ("SET `{key}`=alice", 'SET "{key}" = alice', "SET {key} TO alice", "SET VARIABLE {key} = 'alice'"):
            carol.execute(session, statement.format(key=SPELLINGS[0]))
        assert superset.rows(superset.open(), "SHOW TENANTS") == []
        assert runs_as(carol, session) == ("carol", ["sales"]), transport


def check_audit(target):
    """The audit has the user on whose behalf a statement ran, and who logged in."""
    with Sasl(target, "superset", "alice") as connection:
        connection.execute(connection.open(), "STOP ENGINE shared 'no-such-engine'")
    [row] = target.execute("SHOW AUDIT LIMIT 1")
    assert (row["user"], row["via"], row["method"], row["outcome"]) == ("alice", "superset", "file", "refused"), row


def test_c2_no_user_acts_for_an_admin_an_operator_or_an_auditor(target):
    """Rule `etl: *` covers every other user, and none of these."""
    for transport, connect in TRANSPORTS.items():
        with connect(target, "etl") as etl:
            for user in PROTECTED:
                for key in SPELLINGS:
                    assert opening(etl, **{key: user}) == ("28000", text("etl", user)), (transport, key, user)
            # The rule is in force.
            assert runs_as(etl, etl.open(**{SPELLINGS[0]: "bob"})) == ("bob", ["finance"]), transport
    for user in PROTECTED:
        assert text("etl", user) in refusal(Sasl, target, "etl", user)[0]
        for query in QUERIES:
            assert refusal(Http, target, "etl", query.format(user=user)) == (401, f"{text('etl', user)}\n"), (query, user)


def test_c3_who_is_impersonated_impersonates_no_other_user(target):
    """Each step of the chain has a rule of its own: superset or etl for the first user, etl for the second."""
    # login, on whose behalf, whom that one would impersonate
    chains = [("etl", "superset", "alice"), ("etl", "superset", "carol"), ("superset", "alice", "carol"), ("etl", "bob", "etl")]
    for login, first, second in chains:
        for connection in Sasl(target, login, first), Http(target, login, f"doAs={first}"):
            with connection:
                for key in SPELLINGS:
                    assert opening(connection, **{key: second}) == ("28000", text(first, second)), (login, first, second, key)
        # Both in the settings of one session.
        for transport, connect in TRANSPORTS.items():
            with connect(target, login) as connection:
                received = opening(connection, **{SPELLINGS[0]: first, SPELLINGS[-1]: second})
                named = text(login, min(first, second), "The session names several users.")
                assert received == ("28000", named), (transport, login, first, second)
    with Sasl(target, "etl", "superset") as connection:
        session = connection.open()
        assert connection.rows(session, "SHOW TENANTS") == []


def test_c4_a_target_that_does_not_exist_is_refused_like_a_forbidden_one(target):
    """Otherwise a rule would reveal which users exist."""
    for login, forbidden in ("etl", "admin"), ("superset", "bob"), ("carol", "alice"):
        # As a name is printed: cut at the longest one, and escaped.
        shown = {user: user[:255].replace("\x1b", "\\u{1b}").replace("\u200b", "\\u{200b}") for user in [forbidden, *UNKNOWN]}
        for transport, connect in TRANSPORTS.items():
            with connect(target, login) as connection:
                for user in (*shown, ""):
                    expected = text(login, shown.get(user, user))
                    assert opening(connection, **{SPELLINGS[0]: user}) == ("28000", expected), (login, transport, user)
        for user, printed in shown.items():
            assert text(login, printed) in refusal(Sasl, target, login, user)[0], (login, user)
            by_url = refusal(Http, target, login, f"doAs={urllib.parse.quote(user)}")
            assert by_url == (401, f"{text(login, printed)}\n"), (login, user)
        assert refusal(Http, target, login, "doAs=") == (401, "doAs does not name one user\n"), login
