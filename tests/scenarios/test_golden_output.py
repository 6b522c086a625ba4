"""The outputs of SHOW, DESCRIBE and EXPLAIN as golden files: what differs between two runs is masked, widths are kept.

One fresh standalone, one fixed order of statements: numbers, names of engines and rows follow from the order alone.
"""

import pathlib
import re
import shutil
import socket
import tempfile

import pytest

from harness import golden
from harness.control import Control
from harness.processes import run
from harness.standalone import Standalone
from harness.waiting import wait_until

SETUP = [
    "CREATE RESOURCE UNIT uc_1 DRIVER_CPU 1, DRIVER_MEMORY '512M', EXECUTOR_CPU 2, EXECUTOR_MEMORY '2G', "
    "MIN_ENGINES 1, MAX_ENGINES 3, PROPERTIES ('app.password'='s3cret', 'app.size'='large'), COMMENT 'it''s a unit'",
    "CREATE RESOURCE UNIT uc_2 DRIVER_CPU 0.5, DRIVER_MEMORY '1G'",
    "CREATE RESOURCE POOL rp_1 UNIT_LIST ('uc_1', 'uc_2'), COMMENT 'ünïcödé'",
    "CREATE RESOURCE POOL rp_2 UNIT_LIST ('uc_2'), NAMESPACE 'my-namespace'",
    "CREATE TENANT t_1 RESOURCE_POOL_LIST ('rp_1'), USER_LIST ('alice', 'bob') WAIT '1m'",
    "CREATE TENANT t_2",
]
# Of the folder's name; the rest is made up, of letters, digits and underscores.
PREFIX = "enginehouse-golden."
SHOWN = [
    ("show_engines", "SHOW ENGINES t_1"),
    ("show_engines_pool", "SHOW ENGINES POOL t_1 rp_1"),
    ("show_engines_unit", "SHOW ENGINES UNIT t_1 rp_1 uc_2"),
    ("describe_engine", "DESCRIBE ENGINE rp_1 '{engine}'"),
    ("show_tenants", "SHOW TENANTS"),
    ("show_resource_pools", "SHOW RESOURCE POOLS"),
    ("show_resource_units", "SHOW RESOURCE UNITS LIKE 'uc%'"),
    ("describe_tenant", "DESCRIBE TENANT t_1"),
    ("describe_resource_pool", "DESCRIBE RESOURCE POOL rp_2"),
    ("describe_resource_unit", "DESCRIBE RESOURCE UNIT uc_1"),
    ("show_create_tenant", "SHOW CREATE TENANT t_1"),
    ("show_create_resource_pool", "SHOW CREATE RESOURCE POOL rp_2"),
    ("show_create_resource_unit", "SHOW CREATE RESOURCE UNIT uc_1"),
    ("show_pools_of_unit", "SHOW RESOURCE UNIT uc_2 FOR POOL"),
    ("show_tenants_of_pool", "SHOW RESOURCE POOL rp_1 FOR TENANT"),
    ("explain_alter_unit", "EXPLAIN ALTER RESOURCE UNIT uc_1 DRIVER_MEMORY '1G'"),
    ("explain_alter_tenant", "EXPLAIN ALTER TENANT t_1 RESOURCE_POOL_LIST ('rp_2')"),
    ("explain_create_tenant", "EXPLAIN CREATE TENANT t_3 RESOURCE_POOL_LIST ('rp_1')"),
    ("explain_drop_tenant", "EXPLAIN DROP TENANT t_1"),
    ("explain_nothing", "EXPLAIN ALTER TENANT t_1 COMMENT 'changes no engine'"),
    ("show_demand", "SHOW DEMAND TENANT t_1"),
    ("show_alterations", "SHOW ALTERATIONS LIMIT 3"),
    ("show_master", "SHOW MASTER"),
]
ERRORS = [
    ("error_near_miss", "SHOW RESOURCE POOL rp_1 FRO TENANT"),
    ("error_unknown_tenant", "SHOW ENGINES t_9"),
    ("error_unknown_option", "CREATE RESOURCE UNIT uc_9 DRIVER_CPUS 1"),
    ("error_still_used", "DROP RESOURCE UNIT uc_2"),
    ("error_missing_link", "START ENGINE t_1 rp_2 uc_2"),
    ("error_below_minimum", "STOP ENGINE rp_1 '{engine}'"),
]


# They follow the others, so that no number in those depends on them.
QUOTAS = [
    (
        "create_resource_quota",
        "CREATE RESOURCE QUOTA q_1 TENANT t_1, POOL rp_1, GUARANTEE (CPU 18, MEMORY '64G', ENGINES 5) WAIT",
    ),
    ("create_user_quota", "CREATE RESOURCE QUOTA q_2 USER DEFAULT, LIMIT (CPU 0.5, 'nvidia.com/gpu' 2) WAIT"),
    ("alter_capacity", "ALTER RESOURCE POOL rp_1 CAPACITY (CPU 42, MEMORY '48G'), PROTECTED (CPU 2) WAIT"),
    ("show_quotas", "SHOW QUOTAS"),
    ("show_quotas_of_tenant", "SHOW QUOTAS TENANT t_1"),
    ("describe_resource_quota", "DESCRIBE RESOURCE QUOTA q_1"),
    ("describe_user_quota", "DESCRIBE RESOURCE QUOTA q_2"),
    ("describe_capacity", "DESCRIBE RESOURCE POOL rp_1"),
    ("show_create_resource_quota", "SHOW CREATE RESOURCE QUOTA q_1"),
    ("show_create_capacity", "SHOW CREATE RESOURCE POOL rp_1"),
    ("explain_alter_quota", "EXPLAIN ALTER RESOURCE QUOTA q_1 GUARANTEE (CPU 19)"),
    ("show_reservations", "SHOW RESERVATIONS"),
    ("describe_reservation", "DESCRIBE RESERVATION '{engine}'"),
    ("alter_guarantee", "ALTER RESOURCE QUOTA q_1 GUARANTEE (CPU 1) WAIT"),
    ("explain_start", "EXPLAIN START ENGINE t_1 rp_1 uc_2"),
    ("explain_restart", "EXPLAIN RESTART ENGINE rp_1 '{engine}'"),
]
QUOTA_ERRORS = [
    ("error_second_quota", "CREATE RESOURCE QUOTA q_3 TENANT t_1, POOL rp_1"),
    ("error_quota_without_subject", "CREATE RESOURCE QUOTA q_3"),
    ("error_custom_guarantee", "ALTER RESOURCE QUOTA q_1 GUARANTEE ('nvidia.com/gpu' 2)"),
    ("error_option_of_another_subject", "ALTER RESOURCE QUOTA q_2 WEIGHT 2"),
    ("error_tenant_with_quota", "DROP TENANT t_1"),
    ("error_capacity_of_nodes", "ALTER RESOURCE POOL rp_1 CAPACITY NODES"),
    ("error_reclaim_drain", "ALTER RESOURCE POOL rp_1 RECLAIM 'drain'"),
    ("error_amount", "ALTER RESOURCE QUOTA q_1 GUARANTEE (CPU 18 MEMORY '64G')"),
    ("error_short_of_cpu", "START ENGINE t_1 rp_1 uc_2 NOWAIT"),
    ("error_never_fits", "START ENGINE t_1 rp_1 uc_1"),
    ("error_cancel_of_an_engine", "CANCEL RESERVATION '{engine}'"),
    ("error_unknown_reservation", "DESCRIBE RESERVATION 'nothing'"),
]


class Fresh:
    def __init__(self):
        # A path of one length: tables keep their widths.
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=PREFIX, dir="/var/tmp"))
        self.installation = Standalone(self.folder).start()
        self.control = Control(self.installation.address)
        self.session = None
        for statement in SETUP:
            self.control.execute(statement)
        (engine,) = self.control.wait_ready("t_1")
        self.engine = engine["engine"]
        self.wait_quiet()

    def wait_quiet(self):
        """Until no decision is due that EXPLAIN would show, and the engine is known to be idle."""
        wait_until(
            lambda: (
                all(it["progress"] != "converging" for it in self.control.alterations())
                and self.control.described("rp_1", self.engine)["idle since"]
            ),
            30,
            "all is quiet",
            0.2,
        )

    def execute(self, statement):
        return run(["sql", "--url", self.installation.address, "-e", statement.replace("{engine}", self.engine)])

    def masked(self, text):
        pid = self.installation.engines.one(self.engine).pid
        made_up = self.folder.name.removeprefix(PREFIX)
        text = text.replace(self.folder.name, PREFIX + "#" * len(made_up))
        # Pids differ in length, so they keep the width of their cell and not their own.
        return golden.masked(
            text,
            [
                (rf"\b{pid}\b", "<pid>"),
                (r"(?<=┆ )(\d+(\.\d)? m?s|\d+ min( \d+ s)?)(?= )", "<age>"),
                (rf"standalone@{re.escape(socket.gethostname())}:{self.installation.program.pid}\b", "standalone@<host>:<pid>"),
                (rf"(?<=┆ ){re.escape(socket.gethostname())}(?= )", "<host>"),
            ],
        )

    def close(self):
        self.installation.close()
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="module")
def fresh():
    made = Fresh()
    yield made
    try:
        made.installation.logs.check()
    finally:
        made.close()


@pytest.mark.parametrize(("name", "statement"), SHOWN, ids=[name for name, _ in SHOWN])
def test_output_matches_its_golden_file(fresh, golden_file, name, statement):
    done = fresh.execute(statement)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "s3cret" not in done.stdout
    shown = fresh.masked(done.stdout)
    if statement == "SHOW MASTER":
        # Host names and pids differ in length, and nothing else in the column is as long.
        shown = golden.first_column_of_width(shown, len(" standalone@<host>:<pid> "))
    assert f"{statement};\n{shown}" == golden_file(name=name)


@pytest.mark.parametrize(("name", "statement"), ERRORS, ids=[name for name, _ in ERRORS])
def test_errors_match_their_golden_files(fresh, golden_file, name, statement):
    done = fresh.execute(statement)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"{statement};\n{fresh.masked(done.stderr)}" == golden_file(name=name)


@pytest.mark.parametrize(("name", "statement"), QUOTAS, ids=[name for name, _ in QUOTAS])
def test_quotas_match_their_golden_files(fresh, golden_file, name, statement):
    """With the warnings in the log."""
    fresh.wait_quiet()
    done = fresh.execute(statement)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{statement};\n{fresh.masked(done.stdout + done.stderr)}" == golden_file(name=name)


@pytest.mark.parametrize(("name", "statement"), QUOTA_ERRORS, ids=[name for name, _ in QUOTA_ERRORS])
def test_errors_of_quotas_match_their_golden_files(fresh, golden_file, name, statement):
    done = fresh.execute(statement)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"{statement};\n{fresh.masked(done.stderr)}" == golden_file(name=name)
