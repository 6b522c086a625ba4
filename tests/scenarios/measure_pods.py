"""The cost of pods at a real API server: starts one, and `cargo bench --bench pods` against it.

    EH_TEST_KUBERNETES_PROGRAM=… python tests/scenarios/measure_pods.py [--apart] [creates|quotas|ticks] [AT ONCE [ROUNDS]]
        [-- FURTHER ARGUMENTS OF CARGO]
    … measure_pods.py [--apart] --beside CHECKOUT [--pairs N] creates [AT ONCE [ROUNDS]] [-- FURTHER ARGUMENTS OF CARGO]

With `--apart` the server's processes have the first half of this machine's processors and the bench the other half, as in
production they run on different machines. There is neither scheduler nor kubelet. With `--beside`, the bench of another
checkout takes turns with this one's at the same server, and the ratio of what both reach of the bare client's rate is
printed: each of the N pairs is one run of both, and which is first alternates. `docs/performance.md` has the results.
"""

import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

sys.path[:0] = map(str, pathlib.Path(__file__).resolve().parents[:2])

from harness.control_plane import Kubernetes

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PAIRS = 5
# With the benches of the ledger: alone, each would be built with other features of the same libraries.
PACKAGES = [word for name in ("metadata", "planner", "master") for word in ("-p", name)]
# Of one run: the least, the middle and the most of its rounds.
PERCENT = re.compile(r"^the master from the ALTER on, in percent of the bare client: \S+ (\S+) \S+$", re.MULTILINE)


def main(arguments):
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    what, for_cargo = arguments[:cut], arguments[cut + 1 :]
    other = taken(what, "--beside")
    pairs = int(taken(what, "--pairs") or PAIRS)
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
            command = ["cargo", "bench", *PACKAGES, "--bench", "pods", *for_cargo]
            environment = os.environ | {"EH_TEST_KUBECONFIG": str(cluster.kubeconfig())}
            if other is None:
                run = subprocess.run([*command, "--", *what], cwd=REPOSITORY, env=environment, check=False)
                return run.returncode
            compare(command, what, environment, pathlib.Path(other).resolve(), pairs)
            return 0
        finally:
            cluster.close()


def taken(arguments, option):
    """The value of an option, which is removed from the arguments."""
    if option not in arguments:
        return None
    at = arguments.index(option)
    value = arguments[at + 1]
    del arguments[at : at + 2]
    return value


def compare(command, what, environment, other, pairs):
    for checkout in (other, REPOSITORY):
        print(f"building {name_of(checkout)}", flush=True)
        subprocess.run([*command, "--no-run"], cwd=checkout, env=environment, check=True)
    ratios = []
    for pair in range(pairs):
        percent = {}
        for checkout in (other, REPOSITORY) if pair % 2 == 0 else (REPOSITORY, other):
            print(f"pair {pair}: {name_of(checkout)}", flush=True)
            run = subprocess.run(
                [*command, "--", *what], cwd=checkout, env=environment, check=True, stdout=subprocess.PIPE, text=True
            )
            print(run.stdout, end="", flush=True)
            percent[checkout] = float(PERCENT.search(run.stdout).group(1))
        ratios.append(100 * percent[REPOSITORY] / percent[other])
        print(f"pair {pair}: {ratios[-1]:.1f} % of {name_of(other)}", flush=True)
    ratios.sort()
    print(
        f"{name_of(REPOSITORY)} in percent of {name_of(other)}, in {pairs} pairs: "
        f"{ratios[0]:.1f} {statistics.median(ratios):.1f} {ratios[-1]:.1f}"
    )


def name_of(checkout):
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=checkout, check=True, stdout=subprocess.PIPE)
    return commit.stdout.decode().strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
