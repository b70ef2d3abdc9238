"""S3 for tests: a moto server on loopback, in a separate process that ends with ours."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.zookeeper import LOOPBACK, free_port, launch

START_S = 60.0
POLL_S = 0.02

BUCKET = "understudy"

_SERVE = """
import sys
from moto.moto_server.threaded_moto_server import ThreadedMotoServer
ThreadedMotoServer(ip_address=sys.argv[1], port=int(sys.argv[2]), verbose=False).start()
import signal
while True:
    signal.pause()
"""


class Moto:
    """An S3 server with one bucket; its data is lost with its process."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self.port = free_port(LOOPBACK)
        command = [sys.executable, "-c", _SERVE, LOOPBACK, str(self.port)]
        with log.open("ab") as file:
            self._process: subprocess.Popen[bytes] = launch(command, file.fileno())
        self._await_serving()

    @property
    def endpoint(self) -> str:
        """Return the server's URL."""
        return f"http://{LOOPBACK}:{self.port}"

    def variables(self, endpoint: str = "") -> dict[str, str]:
        """Return the environment by which s3fs and botocore find the server."""
        return {
            "AWS_ENDPOINT_URL": endpoint or self.endpoint,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def end(self) -> None:
        """Kill the server."""
        self._process.kill()
        self._process.wait()

    def _await_serving(self) -> None:
        until = time.monotonic() + START_S
        while True:
            try:
                request = urllib.request.Request(f"{self.endpoint}/{BUCKET}", method="PUT")
                with urllib.request.urlopen(request, timeout=5):
                    return
            except OSError as error:
                if self._process.poll() is not None or time.monotonic() > until:
                    raise AssertionError(f"no S3: {self._log.read_text()}") from error
            time.sleep(POLL_S)


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moto]:
    """Serve S3 to all tests of this process, which find the server by their environment."""
    server = Moto(tmp_path_factory.mktemp("s3") / "log")
    before = {name: os.environ.get(name) for name in server.variables()}
    os.environ.update(server.variables())
    yield server
    server.end()
    for name, text in before.items():
        if text is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = text
