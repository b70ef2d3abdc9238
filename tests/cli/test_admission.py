"""A process without rights waits in a pod, and says what it waits for."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kubernetes import fake
from tests.kubernetes.fake import FakeApi
from tests.support.kubernetes import PATIENCE_S, TICK_S, fake_api
from tests.support.zookeeper import free_port
from understudy.cli.launch import admission
from understudy.config import Configuration
from understudy.core.backoff import Backoff

__all__ = ["fake_api"]

DENIED = {("patch", "leases"), ("create", "leases")}


@pytest.fixture
def configuration(
    fake_api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Configuration:
    monkeypatch.setattr(admission, "AGAIN", Backoff(0.05, 0.05))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(fake.kubeconfig(fake_api.url)))
    return Configuration(
        {
            "high-availability.type": "kubernetes",
            "high-availability.storageDir": str(tmp_path / "ha"),
            "kubernetes.config.file": str(kubeconfig),
            "rest.bind-port": str(free_port()),
        }
    )


def asked(configuration: Configuration, path: str) -> tuple[int, str]:
    """Return status and body of an answer; asks again until something listens."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            url = f"http://127.0.0.1:{configuration.settings['rest.bind-port']}{path}"
            with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            assert time.monotonic() < until
            time.sleep(TICK_S)


def meanwhile(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_it_waits_says_why_and_goes_on_with_the_rights(
    fake_api: FakeApi, configuration: Configuration, caplog: pytest.LogCaptureFixture
) -> None:
    answers: dict[str, tuple[int, str]] = {}

    def look() -> None:
        for path in ("/healthz", "/readyz", "/ha/status", "/jobs"):
            answers[path] = asked(configuration, path)
        seen = fake_api.count("POST", "selfsubjectaccessreviews")
        while fake_api.count("POST", "selfsubjectaccessreviews") < seen + 24:
            time.sleep(TICK_S)
        fake_api.denied = set()

    fake_api.denied = set(DENIED)
    looking = meanwhile(look)
    admission.await_rights(configuration, "flights", jobmanager=True)
    looking.join(PATIENCE_S)

    assert {"/healthz": 200, "/readyz": 503, "/ha/status": 503, "/jobs": 503} == {
        path: status for path, (status, _) in answers.items()
    }
    assert 'verbs: ["create", "patch"]' in answers["/readyz"][1]
    status = json.loads(answers["/ha/status"][1])
    assert 1 == len(status["register"]["missing_rights"])
    assert 1 == caplog.text.count("this process waits for its rights")
    (event,) = fake_api.names("events")
    assert fake_api.object("events", event)["count"] > 1


def test_a_taskmanager_waits_too(fake_api: FakeApi, configuration: Configuration) -> None:
    def look() -> None:
        while not fake_api.names("events"):
            time.sleep(TICK_S)
        fake_api.denied = set()

    fake_api.denied = set(DENIED)
    looking = meanwhile(look)

    admission.await_rights(configuration, "flights", jobmanager=False)

    looking.join(PATIENCE_S)
    assert set() == fake_api.denied


def test_it_can_be_closed_while_it_waits(fake_api: FakeApi, configuration: Configuration) -> None:
    def close() -> None:
        asked(configuration, "/healthz")
        os.kill(os.getpid(), signal.SIGTERM)

    fake_api.denied = set(DENIED)
    closing = meanwhile(close)
    with pytest.raises(SystemExit) as ended:
        admission.await_rights(configuration, "flights", jobmanager=True)

    closing.join(PATIENCE_S)
    assert admission.CLOSED == ended.value.code


def test_from_a_terminal_nothing_waits(
    fake_api: FakeApi, configuration: Configuration, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    fake_api.denied = set(DENIED)

    admission.await_rights(configuration, "flights", jobmanager=True)

    assert [] == fake_api.names("events")


def test_a_jobmanager_that_asks_for_pods_waits_for_the_rights_to_them(
    fake_api: FakeApi, configuration: Configuration, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[tuple[int, str]] = []
    native = configuration.with_settings({"resourcemanager.provider": "kubernetes"})

    def look() -> None:
        while not fake_api.names("events"):
            time.sleep(TICK_S)
        answers.extend(asked(native, path) for path in ("/healthz", "/readyz", "/ha/status"))
        fake_api.denied = set()

    fake_api.denied = {("create", "pods"), ("watch", "pods")}
    admission.await_rights(native, "flights", jobmanager=False)
    assert not caplog.text, "TaskManagers ask for no pods"
    looking = meanwhile(look)
    admission.await_rights(native, "flights", jobmanager=True)
    looking.join(PATIENCE_S)

    assert [200, 503, 503] == [status for status, _ in answers]
    needed = 'resources: ["pods"], verbs: ["watch", "create"]'
    assert all(needed in body.replace("\\", "") for _, body in answers[1:])
    assert needed in caplog.text
    (event,) = fake_api.names("events")
    assert needed in fake_api.object("events", event)["message"]
