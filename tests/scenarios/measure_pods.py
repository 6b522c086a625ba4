"""What engines that are pods cost at a real API server: starts one, and `cargo bench --bench pods` against it.

    EH_TEST_KUBERNETES_PROGRAM=… python tests/scenarios/measure_pods.py [--apart] [creates|ticks] [AT ONCE [ROUNDS]]
        [-- FURTHER ARGUMENTS OF CARGO]

With `--apart` the server's processes have the first half of this machine's processors for themselves, and the bench has the
other half: in production they are on different machines. Without it whatever a client computes is taken from the server.

The program is the one that `tests/run` builds. There is neither scheduler nor kubelet: all that the server and its
controllers do is for whoever makes the pods. The figures that were measured so stand in `docs/performance.md`.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

sys.path[:0] = map(str, pathlib.Path(__file__).resolve().parents[:2])

from harness.kubernetes import Kubernetes

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


def main(arguments):
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    what, for_cargo = arguments[:cut], arguments[cut + 1 :]
    processors = sorted(os.sched_getaffinity(0))
    servers = benchs = processors
    if "--apart" in what:
        what.remove("--apart")
        half = len(processors) // 2
        assert half, "one processor can't be shared out"
        servers, benchs = processors[:half], processors[half:]
    with tempfile.TemporaryDirectory(prefix="enginehouse-pods-", dir="/var/tmp") as folder:
        cluster = Kubernetes(pathlib.Path(folder), scheduler=False)
        try:
            # What is started from here on inherits it.
            os.sched_setaffinity(0, servers)
            cluster.start()
            os.sched_setaffinity(0, benchs)
            command = ["cargo", "bench", "--workspace", "--bench", "pods", *for_cargo, "--", *what]
            environment = os.environ | {"EH_TEST_KUBECONFIG": str(cluster.kubeconfig())}
            return subprocess.run(command, cwd=REPOSITORY, env=environment, check=False).returncode
        finally:
            cluster.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
