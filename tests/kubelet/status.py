"""The parts of a pod's status as pure functions: states of containers, conditions, phases."""

import datetime

NOT_STARTED = {"waiting": {"reason": "ContainerCreating"}}
INITIALIZING = {"waiting": {"reason": "PodInitializing"}}


def now():
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def waiting(reason, message=None):
    return {"waiting": {"reason": reason} | ({"message": message} if message else {})}


def running(started_at):
    return {"running": {"startedAt": started_at}}


def terminated(code, started_at, reason=None, message=None):
    """A `code` above 128 is that of a signal."""
    reason = reason or ("Completed" if code == 0 else "Error")
    state = {"exitCode": code, "reason": reason, "startedAt": started_at, "finishedAt": now()}
    return {"terminated": state | ({"message": message} if message else {})}


def container(name, image, state, ready=False, restarts=0, last=None):
    image_id = f"tests/{image}" if "waiting" not in state else ""
    entry = {"name": name, "image": image, "imageID": image_id, "ready": ready, "restartCount": restarts}
    return entry | {"state": state, "lastState": last or {}, "started": "running" in state}


def condition(kind, holds, reason=None, message=None):
    entry = {"type": kind, "status": "True" if holds else "False", "lastTransitionTime": now()}
    return entry | ({"reason": reason} if reason else {}) | ({"message": message} if message else {})


def succeeded(state):
    return state.get("terminated", {}).get("exitCode") == 0


def phase_of(states, restart_policy, initial=()):
    """The pod's phase from the states of its containers and init containers."""
    if restart_policy == "Never" and any("terminated" in it and not succeeded(it) for it in initial):
        return "Failed"
    if not all(succeeded(it) for it in initial):
        return "Pending"
    if all("terminated" in it for it in states) and restart_policy != "Always":
        if all(succeeded(it) for it in states):
            return "Succeeded"
        if restart_policy == "Never":
            return "Failed"
    started = any("running" in it or "terminated" in it for it in states)
    crashed = any(it.get("waiting", {}).get("reason") == "CrashLoopBackOff" for it in states)
    return "Running" if started or crashed else "Pending"


def of_pod(containers, restart_policy, start_time, ip, host_ip, initial=()):
    phase = phase_of([it["state"] for it in containers], restart_policy, [it["state"] for it in initial])
    incomplete = [it["name"] for it in initial if not succeeded(it["state"])]
    initialized = {"reason": "ContainersNotInitialized", "message": f"containers with incomplete status: {incomplete}"}
    ready = phase == "Running" and all(it["ready"] for it in containers)
    unready = [it["name"] for it in containers if not it["ready"]]
    why = {} if ready else {"reason": "ContainersNotReady", "message": f"containers with unready status: {unready}"}
    if phase == "Succeeded":
        why = {"reason": "PodCompleted"}
    conditions = [
        condition("PodScheduled", True),
        condition("Initialized", not incomplete, **(initialized if incomplete else {})),
        condition("ContainersReady", ready, **why),
        condition("Ready", ready, **why),
    ]
    made = {"phase": phase, "startTime": start_time, "conditions": conditions, "containerStatuses": containers}
    if initial:
        made["initContainerStatuses"] = list(initial)
    return made | {"podIP": ip, "podIPs": [{"ip": ip}], "hostIP": host_ip, "hostIPs": [{"ip": host_ip}]}


def keep_times(conditions, before):
    known = {it["type"]: it for it in before}
    for it in conditions:
        old = known.get(it["type"])
        if old and old["status"] == it["status"]:
            it["lastTransitionTime"] = old["lastTransitionTime"]
