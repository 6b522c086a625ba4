"""An S3 of a test's own: PyPI's `moto` as a server process on loopback, with one bucket. Also the program:

    python object_store.py PORT

which serves until it is ended.
"""

import contextlib
import os
import pathlib
import sys
import threading

if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import boto3
from botocore.config import Config

from harness.ports import free_port
from harness.server_process import ServerProcess

BUCKET = "tables"
KEY, SECRET, REGION = "tests", "tests-secret", "us-east-1"


class ObjectStore(ServerProcess):
    name = "moto"
    env = {"PATH": os.environ.get("PATH", ""), "HOME": "/nonexistent"}

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.port}"

    def command(self):
        return [sys.executable, __file__, self.port]

    def client(self):
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            region_name=REGION,
            config=Config(connect_timeout=2, read_timeout=5, retries={"max_attempts": 0}),
        )

    def answers(self):
        try:
            self.client().list_buckets()
        except Exception:
            return False
        return True

    def start(self):
        super().start()
        self.client().create_bucket(Bucket=BUCKET)
        return self

    def object_names(self):
        return sorted(it["Key"] for it in self.client().list_objects_v2(Bucket=BUCKET).get("Contents", []))

    def settings(self):
        """The keys of section `engines` for a catalog below `eh`."""
        return {
            "catalog_url": f"s3://{BUCKET}/eh",
            "catalog_options": {
                "aws_endpoint": self.endpoint,
                "aws_region": REGION,
                "aws_access_key_id": KEY,
                "aws_secret_access_key": SECRET,
                "aws_allow_http": "true",
            },
        }


def serve(port):
    """Handles one request at a time: `moto` checks a condition of a write before it writes, so that two writers at once, each
    of which wants to be the first, could both succeed."""
    from moto import server  # noqa: PLC0415

    lock = threading.Lock()

    class OneAtATime(server.DomainDispatcherApplication):
        def __call__(self, environ, start_response):
            with lock, contextlib.closing(super().__call__(environ, start_response)) as response:
                return list(response)

    server.DomainDispatcherApplication = OneAtATime
    server.main(["-H", "127.0.0.1", "-p", port])


if __name__ == "__main__":
    serve(sys.argv[1])
