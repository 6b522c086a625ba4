"""The cost of pods at a real API server: starts one, and `cargo bench --bench pods` against it.

    EH_TEST_KUBERNETES_PROGRAM=… python tests/scenarios/measure_pods.py [--apart] [creates|ticks] [AT ONCE [ROUNDS]]
        [-- FURTHER ARGUMENTS OF CARGO]

With `--apart` the server's processes have the first half of this machine's processors and the bench the other half, as in
production they run on different machines. There is neither scheduler nor kubelet. `docs/performance.md` has the results.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

sys.path[:0] = map(str, pathlib.Path(__file__).resolve().parents[:2])

from harness.control_plane import Kubernetes

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
