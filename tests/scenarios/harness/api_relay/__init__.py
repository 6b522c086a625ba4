"""A relay before a real Kubernetes API server, in the test's own process, that does wrong on command.

Everything passes as it is, with the client's own token, until a *fault* says otherwise: which requests (`asking`), or which
events of a watch (`telling`), how many of them, and what becomes of each. What was done is counted, so that a test can say
that it happened; `with relay.fault(…)` fails if it never did.

    with ApiRelay(cluster) as relay:
        master = start(kubeconfig=relay.kubeconfig())
        with relay.fault("error", asking("create", resource="pods"), times=3, after=True) as fault:
            wait_until(lambda: fault.injected == 3, …)

What it can do is in `faults`. A network that is cut is `harness.tcp_relay`, which knows nothing of what it relays.
"""

from harness.api_relay.calls import ANY, ApiCall, api_calls, watch_events
from harness.api_relay.relay import ApiRelay

__all__ = ["ANY", "ApiCall", "ApiRelay", "api_calls", "watch_events"]
