"""A MariaDB server that is made a standby keeps its connections: nothing is decided or read on them any more."""

import time

import pyhive.exc
import pytest

from harness.control import Control
from harness.databases import MariadbServer
from harness.fixtures import started
from harness.waiting import stays

# Longer than several ticks, and than the pool keeps an idle connection from being asked again.
STANDS_FOR_S = 5
COMES_WITHIN_S = 2


@pytest.fixture
def server():
    yield from started(MariadbServer())


def test_a_primary_that_becomes_a_standby_is_neither_read_nor_written(server, own_cluster):
    cluster = own_cluster(database=server.database())
    control = Control(cluster.addresses["proxy-b"])
    control.execute("CREATE RESOURCE UNIT u DRIVER_CPU 1, DRIVER_MEMORY '512M'")
    cluster.settled(control)
    cluster.logs.allow("no metadata agent responds; using the last catalog", "metadata database does not respond")
    cluster.database.rows("SET GLOBAL read_only = 1")

    def is_refused():
        with pytest.raises(pyhive.exc.OperationalError, match="standby"):
            control.execute("DESCRIBE RESOURCE UNIT u")
        return True

    assert is_refused()
    time.sleep(COMES_WITHIN_S)
    last = cluster.last_tick()
    stays(lambda: cluster.last_tick() == last, STANDS_FOR_S, "no tick is written on a standby")
    assert is_refused()
    cluster.database.rows("SET GLOBAL read_only = 0")
    cluster.wait_for_master()
    assert control.execute("DESCRIBE RESOURCE UNIT u")
