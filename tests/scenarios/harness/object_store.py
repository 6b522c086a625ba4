"""An S3 of a test's own: PyPI's `moto` as a server process on loopback, with one bucket."""

import os
import pathlib
import sys

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
        return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]

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
