"""What engines that are pods cost at a real API server: starts one, and `cargo bench -p master --bench pods` against it.

    EH_TEST_KUBERNETES_PROGRAM=… python tests/scenarios/measure_pods.py [creates|ticks] [-- FURTHER ARGUMENTS OF CARGO]

The program is the one that `tests/run` builds. There is neither scheduler nor kubelet: all that the server and its
controllers do is for whoever makes the pods. The figures that were measured so stand in `docs/performance.md`.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from harness.kubernetes import Kubernetes

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


def main(arguments):
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    what, for_cargo = arguments[:cut], arguments[cut + 1:]
    with tempfile.TemporaryDirectory(prefix="enginehouse-pods-", dir="/var/tmp") as folder:
        cluster = Kubernetes(pathlib.Path(folder), scheduler=False)
        try:
            cluster.start()
            command = ["cargo", "bench", "-p", "master", "--bench", "pods", *for_cargo, "--", *what]
            environment = os.environ | {"EH_TEST_KUBECONFIG": str(cluster.kubeconfig())}
            return subprocess.run(command, cwd=REPOSITORY, env=environment).returncode
        finally:
            cluster.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
