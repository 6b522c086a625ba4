"""A Spark Thrift Server as Spark ships it, without a gateway: it trusts every user name, and its users share one engine."""

import contextlib
import pathlib
import shutil

from harness import spark
from harness.clients import open_pyhive
from harness.ports import free_port
from harness.server_process import ServerProcess


class BareSpark(ServerProcess):
    name = "Spark"
    start_within_s = 120

    def __init__(self, folder):
        self.folder, self.port = folder, free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.folder.mkdir(parents=True)
        path = f"{pathlib.Path(shutil.which('java')).parent}:/usr/bin:/bin"
        self.env = {"PATH": path, "JAVA_HOME": str(spark.java_home()), "HOME": str(folder), "TZ": "UTC"}

    def command(self):
        conf = {
            "spark.master": "local[1]",
            "spark.ui.enabled": "false",
            "spark.sql.catalogImplementation": "in-memory",
            "spark.sql.warehouse.dir": self.folder / "warehouse",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "1",
            "spark.hadoop.hive.server2.thrift.port": self.port,
            "spark.hadoop.hive.server2.thrift.bind.host": "127.0.0.1",
            **spark.PROPERTIES,
        }
        settings = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
        server = "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2"
        return [spark.home() / "bin/spark-submit", *settings, "--class", server, "spark-internal"]

    def answers(self):
        with contextlib.suppress(Exception):
            open_pyhive(self.address, "alice").close()
            return True
        return False
