"""The start of a container: image, volumes and process, and the reason in a kubelet's words if it cannot start."""

from kubelet import status
from kubelet.container import Process
from kubelet.environment import Missing, NotMounted, Sight

CONFIG_AGAIN_S = 0.5
BACK_OFF_AFTER_S = 0.5
NODE_ADDRESS = "127.0.0.1"


class Starter:
    """Starts containers for a `Kubelet`, in its thread."""

    def __init__(self, kubelet, images):
        self.kubelet, self.images = kubelet, images

    def try_start(self, pod, container):
        kubelet = self.kubelet
        image, fault = self.images.get(container.spec["image"]), kubelet.faults.of("image", pod.seen)
        if image is not None and image.runs and not self.mounts(pod, container):
            return
        if image is None or fault is not None:
            self.cannot_pull(pod, container, (fault or {}).get("message"))
            return
        if kubelet.faults.of("start", pod.seen) is not None:
            container.waits("ContainerCreating", None, 0)
            return
        fault = kubelet.faults.of("config", pod.seen)
        try:
            if fault is not None:
                raise Missing(fault.get("message", "couldn't find key"))
            process = self.started(pod, container, image) if image.runs else None
        except Missing as missing:
            container.waits("CreateContainerConfigError", str(missing), CONFIG_AGAIN_S)
            kubelet.later(CONFIG_AGAIN_S, kubelet.look, pod.uid)
            return
        container.started(process)
        kubelet.reports.event(pod, "Normal", "Started", f"Started container {container.name}")
        if process is not None:
            kubelet.follow(pod, container)
        elif container.initial:
            container.ended(0)
        else:
            container.ready = True

    def mounts(self, pod, container):
        kubelet = self.kubelet
        if pod.sight is not None:
            return True
        host, port = kubelet.cluster.address.rsplit(":", 1)
        inherited = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
        sight = Sight(pod.seen, pod.ip, NODE_ADDRESS, kubelet.client, inherited)
        try:
            pod.volumes = sight.write_volumes(pod.folder / "volumes")
        except NotMounted as why:
            state = status.INITIALIZING if pod.initial else status.NOT_STARTED
            container.waits(state["waiting"]["reason"], None, CONFIG_AGAIN_S)
            if pod.not_mounted != str(why):
                pod.not_mounted = str(why)
                kubelet.reports.event(pod, "Warning", "FailedMount", str(why))
            kubelet.later(CONFIG_AGAIN_S, kubelet.look, pod.uid)
            return False
        pod.sight = sight
        kubelet.names.write(kubelet.pods.values())
        return True

    def cannot_pull(self, pod, container, message):
        name = container.spec["image"]
        message = message or f'failed to pull and unpack image "{name}": not found'
        first = container.tries == 0
        container.tries += 1
        container.waits(
            "ErrImagePull" if first else "ImagePullBackOff",
            message if first else f'Back-off pulling image "{name}": ErrImagePull: {message}',
            BACK_OFF_AFTER_S,
        )
        if container.tries <= 2:
            self.kubelet.reports.event(pod, "Warning", "Failed", f'Failed to pull image "{name}": {message}')
        self.kubelet.later(BACK_OFF_AFTER_S, self.kubelet.look, pod.uid)

    def started(self, pod, container, image):
        process = Process(container.spec, pod.seen, image, pod.folder / f"{container.name}-{container.runs_begun}")
        process.start(pod.sight, pod.volumes, pod.hosts)
        container.runs_begun += 1
        return process
