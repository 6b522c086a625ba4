"""Addresses of 127.0.0.0/8 for pods; no two kubelets of this machine give out the same."""

import socket

SECONDS = range(64, 250)
CLAIM_PORT = 9


class Addresses:
    """The addresses with one second number, which is claimed by binding a port of it."""

    def __init__(self):
        for second in SECONDS:
            self.claim = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            try:
                self.claim.bind((f"127.{second}.0.1", CLAIM_PORT))
                break
            except OSError:
                self.claim.close()
        else:
            raise AssertionError("no addresses of 127.0.0.0/8 are left")
        self.free = (f"127.{second}.{third}.{fourth}" for third in range(1, 256) for fourth in range(1, 255))

    def next(self):
        return next(self.free)

    def close(self):
        self.claim.close()
