"""Spark as the tests run it: the one that pyspark ships, in a small and quickly started virtual machine."""

import pathlib
import shutil

from kubelet import Image

# The section for a machine on which there is none.
ABSENT = {"unconfined": True, "program": "/nowhere/bin/spark-submit"}
IMAGE = "registry.example/spark:3"
USER = 185
HOME = "/opt/pyspark"
USERS = f"root:x:0:0::/root:/bin/sh\nspark:x:{USER}:{USER}::/nonexistent:/bin/sh\n"
# The executor part of the entry point of Spark's own images; drivers do not use it.
ENTRYPOINT = f"""#!/bin/bash
set -eu
[ "$1" = executor ]
options=()
for name in "${{!SPARK_JAVA_OPT_@}}"; do options+=("${{!name}}"); done
exec java "${{options[@]}}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" -cp "{HOME}/jars/*" \\
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend --driver-url "$SPARK_DRIVER_URL" \\
    --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" --app-id "$SPARK_APPLICATION_ID" \\
    --hostname "$SPARK_EXECUTOR_POD_IP" --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \\
    --podName "$SPARK_EXECUTOR_POD_NAME"
"""
PROPERTIES = {"spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"}


def home():
    """Where it is; asked late, because the quick tier imports this file and has no pyspark."""
    import pyspark  # noqa: PLC0415

    return pathlib.Path(pyspark.__file__).resolve().parent


def version():
    import pyspark  # noqa: PLC0415

    return pyspark.__version__


def java_home():
    return pathlib.Path(shutil.which("java")).resolve().parents[1]


def on_this_machine():
    """The section of the configuration with which engines of type spark are local processes."""
    return {
        "unconfined": True,
        "program": str(home() / "bin/spark-submit"),
        "environment": {"JAVA_HOME": str(java_home())},
        "properties": PROPERTIES,
    }


def image(folder):
    folder.mkdir(parents=True)
    users, entrypoint = folder / "passwd", folder / "entrypoint.sh"
    users.write_text(USERS)
    entrypoint.write_text(ENTRYPOINT)
    entrypoint.chmod(0o755)
    files = {HOME: home(), "/etc/passwd": users, "/opt/entrypoint.sh": entrypoint}
    return Image(files, entrypoint=["/opt/entrypoint.sh"])


def done(session, statement):
    """Executes a statement without rows: PyHive can't read what Spark answers instead of them, a result without columns."""
    cursor = session.cursor()
    cursor.execute(statement)
    cursor.close()


def in_pods(port):
    return {
        "program": f"{HOME}/bin/spark-submit",
        "environment": {"JAVA_HOME": str(java_home())},
        "port": port,
        "versions": {IMAGE: version()},
        "properties": PROPERTIES,
    }
