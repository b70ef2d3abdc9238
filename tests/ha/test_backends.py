"""Backends are found by their name, or by module and factory; what cannot be opened is named."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import ModuleType

import pytest

from understudy.errors import ConfigurationError
from understudy.ha.backends import open_register
from understudy.ha.backends.embedded import EmbeddedRegister
from understudy.ha.backends.filesystem import FilesystemRegister


@pytest.fixture
def theirs(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module of somebody else's."""
    module = ModuleType("somebody_elses_backend")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def test_a_backend_of_somebody_else_is_opened_by_module_and_factory(theirs: ModuleType) -> None:
    asked: list[tuple[str, Mapping[str, str]]] = []
    register = EmbeddedRegister()

    def factory(cluster_id: str, settings: Mapping[str, str]) -> EmbeddedRegister:
        asked.append((cluster_id, settings))
        return register

    theirs.factory = factory  # type: ignore[attr-defined]
    opened = open_register("somebody_elses_backend:factory", "flights", {"a": "b"})

    assert register is opened
    assert [("flights", {"a": "b"})] == asked


@pytest.mark.parametrize("kind", ["filesystem", "FileSystem"])
def test_a_backend_of_ours_is_opened_by_its_name(kind: str, tmp_path: object) -> None:
    settings = {"high-availability.storageDir": str(tmp_path)}

    assert isinstance(open_register(kind, "flights", settings), FilesystemRegister)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("carrier-pigeon", "known here: NONE, filesystem, kubernetes, zookeeper, or module:name$"),
        (
            "embedded",
            "several processes; choose NONE, filesystem, kubernetes, zookeeper, or module:name$",
        ),
        ("understudy.ha.backends.embedded:BACKEND", "several processes; choose NONE"),
        ("no_such_module:factory", "no_such_module"),
        ("somebody_elses_backend:nothing", "nothing"),
        ("somebody_elses_backend:", "high-availability.type"),
    ],
)
def test_a_backend_that_cannot_be_opened_is_named_with_the_option(
    theirs: ModuleType, kind: str, said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said) as refused:
        open_register(kind, "flights", {})

    assert "high-availability.type" in str(refused.value)
    assert kind in str(refused.value)
