"""A Spark cluster whose every connection is TLS with a key store of its own, and needs a secret.

The secret and the stores' password stand where Spark's own programs look: in the
``spark-defaults.conf`` of the host on which drivers run.
"""

from __future__ import annotations

import contextlib
import json
import os
import ssl
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.journeys import harness
from tests.journeys.harness import COMMAND, WHOLE_S, Run
from tests.journeys.spark.conftest import left_behind, on, put
from tests.support.command_lines import Watcher
from tests.support.spark_cluster import SparkCluster
from understudy.spark import properties
from understudy.spark.java import javas

KEYTOOLS = [str(tool) for java in javas() if (tool := java.home / "bin" / "keytool").exists()]

pytestmark = [
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.skipif(not KEYTOOLS, reason="no keytool here: a JDK has one"),
]

SECRET, PASSWORD = "secret-of-the-tls-cluster", "password-of-the-stores"
JOB = "shuffles"
KEYS, EACH = 40, 25
KINDS = ("launcher.Main", "deploy.SparkSubmit", "CoarseGrainedExecutorBackend", "understudy.driver")
FEW = ("--jobmanagers", "1", "--slots", "1", "-D", "taskmanager.spare-drivers=0")
TOLD = "authentication enabled"
"""What each of Spark's programs logs when it starts."""


@dataclass
class Story:
    """What was seen of the run."""

    run: Run
    cluster: SparkCluster
    watcher: Watcher
    certificate: str
    """That of the key store."""
    shown: dict[str, str] = field(default_factory=dict)
    """Which certificate Master and driver show."""
    said: list[str] = field(default_factory=list)
    """What the executors' logs say."""
    readable: list[Path] = field(default_factory=list)
    """Files with the secret or the password that others can read."""
    code: int = -1
    left: dict[int, str] = field(default_factory=dict)


def _stores(place: Path) -> str:
    """Make a key pair, and a store of whom to trust; return the certificate."""
    store = ("-noprompt", "-storetype", "PKCS12", "-storepass:env", "STORE")
    alias = ("-alias", "spark")
    keys = (*alias, "-keystore", str(place / "keys.p12"))
    name = ("-dname", "CN=understudy-tests", "-ext", "san=ip:127.0.0.1,dns:localhost")
    kind = ("-keyalg", "EC", "-groupname", "secp256r1", "-validity", "2")
    pem, trusted = str(place / "spark.pem"), str(place / "trusted.p12")
    for words in (
        ("-genkeypair", *keys, *kind, *name),
        ("-exportcert", "-rfc", *keys, "-file", pem),
        ("-importcert", *alias, "-keystore", trusted, "-file", pem),
    ):
        done = subprocess.run(
            [KEYTOOLS[0], *words, *store],
            env={**harness.environment(place), "STORE": PASSWORD},
            capture_output=True,
            text=True,
            timeout=harness.PATIENCE_S,
            check=False,
        )
        assert 0 == done.returncode, done.stdout + done.stderr
    return (place / "spark.pem").read_text()


def _encrypted(place: Path) -> dict[str, str]:
    """Return the settings that Masters, Workers and drivers share."""
    rpc = "spark.ssl.rpc"
    return {
        "spark.authenticate": "true",
        "spark.authenticate.secret": SECRET,
        f"{rpc}.enabled": "true",
        f"{rpc}.protocol": "TLSv1.3",
        f"{rpc}.keyStore": str(place / "keys.p12"),
        f"{rpc}.keyStoreType": "PKCS12",
        f"{rpc}.keyStorePassword": PASSWORD,
        f"{rpc}.keyPassword": PASSWORD,
        f"{rpc}.trustStore": str(place / "trusted.p12"),
        f"{rpc}.trustStoreType": "PKCS12",
        f"{rpc}.trustStorePassword": PASSWORD,
    }


def _open_to_others(place: Path) -> list[Path]:
    """Return the files that others can read, and in which a secret stands."""
    found = []
    for directory, _, names in os.walk(place):
        for path in (Path(directory, name) for name in names):
            with contextlib.suppress(OSError):  # It is gone meanwhile.
                if stat.S_ISREG(path.lstat().st_mode) and path.stat().st_mode & 0o044:
                    text = path.read_bytes()
                    if any(word.encode() in text for word in (SECRET, PASSWORD)):
                        found.append(path)
    return found


def _certificate(address: tuple[str, int]) -> str:
    return ssl.get_server_certificate(address, timeout=harness.PATIENCE_S)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """Run a job on such a cluster, and look at it while its tasks tick."""
    place = tmp_path_factory.mktemp("tls")
    certificate = _stores(place)
    settings = _encrypted(place)
    home = place / "home"
    (home / "conf").mkdir(parents=True)
    properties.write(home / "conf" / "spark-defaults.conf", settings)
    with contextlib.ExitStack() as stack:
        kinds = (*KINDS, "master.Master", "worker.Worker")
        watcher = stack.enter_context(Watcher((SECRET, PASSWORD), kinds))
        cluster = stack.enter_context(SparkCluster(place / "cluster", workers=1, conf=settings))
        script = put(home, "at_once_on_a_cluster.py")
        line = [*COMMAND, "run-application", "--json", "-D", f"io.tmp.dirs={home / 'tmp'}"]
        line += ["--name", "tls", *FEW, *on(cluster), str(script), str(home), JOB]
        variables = {"SPARK_CONF_DIR": str(home / "conf")}
        run = Run(line, home, home / "stderr.log", variables)
        stack.callback(harness.end, run)
        found = Story(run, cluster, watcher, certificate)
        run.until_line("marks.txt", f"tick {JOB} 1".__eq__, WHOLE_S)
        [note] = map(json.loads, run.lines("attempts.txt"))
        port = int(cluster.url.rpartition(":")[2])
        found.shown = {
            "master": _certificate((cluster.host, port)),
            "driver": _certificate((note["host"], note["port"])),
        }
        found.readable = _open_to_others(place)
        (home / f"go-{JOB}").touch()
        found.code = run.finish(WHOLE_S)
        found.said = [
            path.read_text(errors="replace")
            for path in cluster.workers[0].directory.glob("app-*/*/stderr")
        ]
        found.left = left_behind(home)
        yield found


def test_the_job_ends_with_the_right_result(story: Story) -> None:
    shuffled = {str(key): EACH for key in range(KEYS)}

    assert 0 == story.code, story.run.story()
    values = json.loads((story.run.place / "values.json").read_text())
    assert {JOB: shuffled} == values
    assert {} == story.left
    assert story.cluster.await_idle().idle


def test_master_and_driver_speak_tls_with_the_key_of_the_store(story: Story) -> None:
    expected = ssl.PEM_cert_to_DER_cert(story.certificate)

    assert {"master": expected, "driver": expected} == {
        who: ssl.PEM_cert_to_DER_cert(shown) for who, shown in story.shown.items()
    }


def test_master_worker_and_executors_ask_for_the_secret(story: Story) -> None:
    logs = [path.read_text() for path in story.cluster.directory.glob("*.log")]

    assert 2 == len(logs)
    assert story.said
    for said in (*logs, *story.said):
        assert TOLD in said
        assert "RPC SSL enabled" in said


def test_secret_and_password_stand_on_no_command_line_and_in_no_file_of_others(
    story: Story,
) -> None:
    assert {*KINDS, "master.Master", "worker.Worker"} == story.watcher.kinds
    assert set() == story.watcher.found
    assert [] == story.readable
