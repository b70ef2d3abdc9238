"""The commands of docs/kubernetes.md that start and ask clusters in pods, on a real API server."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.repository import ROOT
from tests.kubernetes.api import CORE, await_that, path
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.nodes import Node, understudy_image
from tests.kubernetes.rights import Rights
from tests.kubernetes.test_deploying import APP, RESTRICTED, RULES, Terminal, leader, left
from tests.support.pages import blocks

pytestmark = pytest.mark.kubernetes

PAGE = ROOT / "docs" / "kubernetes.md"
IMAGES = ("registry.example/flights:1", "registry.example/spark:1")
NOT_HERE = "high-availability.storageDir=s3://bucket/understudy"
"""The tests' clusters keep their data in files."""


def commands(first: str) -> list[list[str]]:
    """Return the words of each command in the block of the page that begins with ``first``."""
    (block,) = (one for one in blocks(PAGE) if one.text.startswith(f"understudy {first} "))
    lines = block.text.replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True)[1:] for line in lines]


class Reader:
    """Somebody who types what the page says; ``named`` replaces what a reader has of their own."""

    def __init__(self, terminal: Terminal, named: dict[str, list[str]]) -> None:
        self._terminal = terminal
        self.named = {NOT_HERE: [own(terminal, "high-availability.storageDir")], **named}

    def type(self, said: list[str], *further: str, code: int = 0) -> str:
        """Type one command of the page, with the settings of the tests that it does not give."""
        words = [word for one in said for word in self.named.get(one, [one])]
        keys = {word.partition("=")[0] for word in words}
        settings = self._terminal.settings[1::2]
        more = [one for one in settings if one.partition("=")[0] not in keys]
        # Options come before the application: what follows it is the application's own.
        name = 2 if words[0] == "session" else 1
        options = [word for one in more for word in ("-D", one)]
        return self._terminal.type(*words[:name], *options, *further, *words[name:], code=code)


def own(terminal: Terminal, key: str) -> str:
    """Return a setting of the tests."""
    return next(one for one in terminal.settings if one.startswith(f"{key}="))


@pytest.fixture(scope="module")
def node(kubernetes: ControlPlane) -> Iterator[Node]:
    with Node(kubernetes, "node-1", {name: understudy_image() for name in IMAGES}) as one:
        yield one


@pytest.fixture
def namespace(kubernetes: ControlPlane) -> Iterator[str]:
    with kubernetes.namespace(RESTRICTED) as name:
        yield name


def grant(plane: ControlPlane, namespace: str, user: str) -> None:
    """Give a service account's pods the rights that the page lists."""
    Rights(plane, namespace, user).grant(RULES)


@pytest.fixture
def terminal(kubernetes: ControlPlane, namespace: str, tmp_path: Path) -> Terminal:
    (tmp_path / "etl.py").write_text(APP)
    return Terminal(kubernetes, namespace, tmp_path)


def test_the_commands_of_an_application_start_list_and_cancel_it(
    kubernetes: ControlPlane, node: Node, namespace: str, terminal: Terminal, tmp_path: Path
) -> None:
    grant(kubernetes, namespace, kubernetes.service_account("understudy", namespace))
    start, shows, cancel = commands("run-application -t kubernetes-application")
    app = {
        "local:///opt/app/etl.py": [f"local://{tmp_path}/etl.py"],
        "an-argument": [str(tmp_path)],
    }
    reader = Reader(terminal, app)
    told = json.loads(reader.type(start, "--json"))
    await_that("the job runs", (tmp_path / "begun").exists)
    listed = reader.type(shows)
    reader.named["RUN_ID"] = [told["run-id"]]
    reader.type(cancel)

    assert told["run-id"] in listed
    await_that("everything has gone", lambda: not left(kubernetes, namespace))
    assert not (tmp_path / "result").exists()


def test_the_commands_of_a_session_start_use_show_stop_and_destroy_it(
    kubernetes: ControlPlane, node: Node, namespace: str, terminal: Terminal, tmp_path: Path
) -> None:
    grant(kubernetes, namespace, f"system:serviceaccount:{namespace}:default")
    start, run, status, stop, destroy = commands("session start -t kubernetes-session")
    reader = Reader(terminal, {"app.py": [str(tmp_path / "etl.py"), str(tmp_path)]})
    (tmp_path / "go").touch()
    reader.type(start)
    available = ("wait", "--for=condition=available", "--timeout=60s", "deployment/shared")
    kubernetes.kubectl("-n", namespace, *available)

    shown = json.loads(reader.type(status, "--json"))
    assert ["runs"] * 2 == [one["state"] for one in shown["processes"]]
    assert [True] == [one["leads"] for one in shown["processes"] if one["leads"]]
    assert leader(kubernetes, namespace, "shared")["rest"] == shown["leader"]["rest"]

    reader.type(run)
    assert "7" == (tmp_path / "result").read_text()
    assert "etl" in reader.type(status)
    assert "is in use: " in reader.type(destroy, "--yes", code=1)

    assert "its data is kept" in reader.type(stop)
    await_that("its objects have gone", lambda: not left(kubernetes, namespace))
    kept = path(CORE, "configmaps", "shared-cluster-config-map", namespace)
    assert kubernetes.admin.find(kept) is not None
    assert "nobody leads" in reader.type(status, code=1)

    assert "is gone" in reader.type(destroy, "--yes")
    assert kubernetes.admin.find(kept) is None
