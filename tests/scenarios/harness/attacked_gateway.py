"""A gateway that rows about one method attack: a standalone with that method behind `file`, on loopback without TLS, and a
tenant of `alice` with its engine. The users file has `keeper`, an admin."""

from harness.attacked import password_of
from harness.clients import pyhive_session, rows
from harness.processes import run
from harness.standalone import Standalone

KEEPER = "keeper"
CONFIGURATION = """
[access]
authentication = ["file", "{method}"]
users_file = "{users}"
admins = ["admin", "{keeper}"]
"""


class AttackedGateway:
    def __init__(self, folder, method, sections="", env=None):
        self.standalone = Standalone(folder / "gateway", env=env)
        users, path = folder / "users", folder / "gateway.toml"
        done = run(["passwd", "--file", users, KEEPER], text=f"{password_of(KEEPER)}\n")
        assert done.returncode == 0, done.stderr
        path.write_text(CONFIGURATION.format(method=method, users=users, keeper=KEEPER) + sections)
        self.standalone.start("--config", path)
        with self.keeper() as keeper:
            rows(keeper, "CREATE RESOURCE UNIT u DRIVER_CPU 1, DRIVER_MEMORY '512M'")
            rows(keeper, "CREATE RESOURCE POOL p UNIT_LIST ('u')")
            rows(keeper, f"CREATE TENANT t RESOURCE_POOL_LIST ('p'), USER_LIST ('alice', '{KEEPER}')")
            rows(keeper, "START ENGINE t p u WAIT '2m'")

    def keeper(self):
        return pyhive_session(self.standalone.address, KEEPER, password=password_of(KEEPER))

    def check_health(self, *sessions):
        """After an attack a login, a query and a control statement work, and no log has an unexpected warning. `sessions` are
        those of users whom the method knows."""
        for opened in (self.keeper(), *sessions):
            with opened as session:
                assert rows(session, "SELECT 40 + 2 AS answer") == [{"answer": 42}]
                assert [it["state"] for it in rows(session, "SHOW ENGINES t")] == ["ready"]
        self.standalone.logs.check()

    def close(self):
        self.standalone.close()
