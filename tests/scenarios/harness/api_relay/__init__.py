"""A relay in front of a real Kubernetes API server, in the test's own process, that injects faults.

Requests pass unchanged, with the client's own token, unless a *fault* matches: requests (`api_calls`) or events of a watch
(`watch_events`), and how many. Injected faults are counted; `with relay.fault(…)` fails if none was injected.

    with ApiRelay(cluster) as relay:
        master = start(kubeconfig=relay.kubeconfig_of(token, "master"))
        with relay.fault("error", api_calls("create", resource="pods"), times=3, after=True) as fault:
            wait_until(lambda: fault.injected == 3, …)
"""

from harness.api_relay.calls import api_calls, watch_events
from harness.api_relay.relay import ApiRelay

__all__ = ["ApiRelay", "api_calls", "watch_events"]
