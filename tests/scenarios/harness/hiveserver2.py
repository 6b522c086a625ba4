"""Servers of engines of type hiveserver2 as the tests run them: real HiveServer2 servers, from command templates."""

import psutil

from harness import spark
from harness.processes import BINARY

# The example of the crate datafusion-engine: one engine as a server of its own.
DATAFUSION = BINARY.parent / "examples/datafusion_server"
SPARKS_SERVER = "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2"


def datafusion(program=DATAFUSION, unconfined=True):
    """The section of the configuration with which the engines are DataFusion's, in a server of its own."""
    options = {
        "--listen": "{host}:{port}",
        "--directory": "{directory}/data",
        "--memory-mib": "{memory_mib}",
        "--cores": "{cores}",
        "--engine": "{engine}",
        "--tenant": "{tenant}",
    }
    return {
        "unconfined": unconfined,
        "command": [str(program), *(word for option in options.items() for word in option), "{properties}"],
        "property_arguments": ["--property", "{key}={value}"],
        "environment": {"PLACE": "{pool}/{unit}", "BRACES": "{{{cores}}}"},
    }


def sparks_server():
    """The same with Spark's server, started by its own command line."""
    settings = {
        "hive.server2.thrift.bind.host": "{host}",
        "hive.server2.thrift.port": "{port}",
        "hive.exec.scratchdir": "{directory}/tmp/hive",
    }
    hive = [word for key, value in settings.items() for word in ("--conf", f"spark.hadoop.{key}={value}")]
    return {
        "unconfined": True,
        "command": [
            str(spark.home() / "bin/spark-submit"),
            *("--name", "{engine}", "--master", "local[{cores}]", "--driver-memory", "{heap_mib}m"),
            *("--properties-file", "{properties_file}", *hive, "--class", SPARKS_SERVER),
        ],
        "environment": {"JAVA_HOME": str(spark.java_home()), "SPARK_LOCAL_IP": "{host}", "SPARK_LOCAL_DIRS": "{directory}/tmp"},
        "properties": spark.PROPERTIES
        | {
            "spark.ui.enabled": "false",
            "spark.sql.catalogImplementation": "in-memory",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        },
    }


def server_of(engine, program):
    """The process of that program behind an engine's agent."""
    (server,) = [it for it in psutil.Process(engine.pid).children(recursive=True) if it.name().startswith(program)]
    return server
