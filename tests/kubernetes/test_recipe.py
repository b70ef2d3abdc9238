"""What a kubelet's values decide alone, as tables."""

from __future__ import annotations

import pytest

from tests.kubernetes.kubelet.images import Image
from tests.kubernetes.kubelet.logs import Wanted, wanted
from tests.kubernetes.kubelet.recipe import (
    ConfigurationError,
    Object,
    Surroundings,
    expanded,
    recipe,
)
from tests.kubernetes.kubelet.status import ContainerState, phase

MOUNTS = {"/etc/app": "/pod/etc/app", "/etc/app/tls": "/pod/etc/app/tls", "/data/": "/pod/data"}

AROUND = Surroundings(
    pod={
        "metadata": {"name": "pod", "namespace": "ns", "uid": "1", "labels": {"a/b": "green"}},
        "spec": {"nodeName": "node"},
    },
    address="127.1.1.2",
    host_address="127.1.1.1",
    root="/pod",
    mounts=MOUNTS,
    server={"KUBERNETES_SERVICE_HOST": "127.0.0.1"},
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(A)", "one"),
        ("$(A)/$(B)", "one/two"),
        ("$(NONE)", "$(NONE)"),
        ("$$(A)", "$(A)"),
        ("$A ${A} $$", "$A ${A} $"),
    ],
)
def test_references_to_variables_are_expanded(text: str, expected: str) -> None:
    assert expected == expanded(text, {"A": "one", "B": "two"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/etc/app", "/pod/etc/app"),
        ("cat /etc/app/file", "cat /pod/etc/app/file"),
        ("--config=/etc/app:/etc/app/tls/key", "--config=/pod/etc/app:/pod/etc/app/tls/key"),
        ("file:///data/file", "file:///pod/data/file"),
        (
            "/etc/apple /my/etc/app /etc/app.d /database",
            "/etc/apple /my/etc/app /etc/app.d /database",
        ),
    ],
)
def test_paths_below_mount_paths_are_relocated(text: str, expected: str) -> None:
    assert expected == AROUND.relocated(text)


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        ({}, ("run", "fast")),
        ({"args": ["slow"]}, ("run", "slow")),
        ({"command": ["walk"]}, ("walk",)),
        ({"command": ["walk"], "args": ["slow"]}, ("walk", "slow")),
    ],
)
def test_command_and_arguments_stand_for_those_of_the_image(
    container: Object, expected: tuple[str, ...]
) -> None:
    image = Image(("run",), ("fast",))

    made = recipe({"name": "main", **container}, image, AROUND, lambda *_: None)

    assert expected == made.argv


def test_variables_see_those_before_them() -> None:
    label = {"fieldRef": {"fieldPath": "metadata.labels['a/b']"}}
    declared = [
        {"name": "FIRST", "valueFrom": label},
        {"name": "SECOND", "value": "$(FIRST) $(THIRD) /data/x"},
        {"name": "THIRD", "value": "late"},
    ]
    container = {"name": "main", "command": ["sh"], "env": declared}

    environment = recipe(container, Image(), AROUND, lambda *_: None).environment

    assert "green $(THIRD) /pod/data/x" == environment["SECOND"]
    assert "127.0.0.1" == environment["KUBERNETES_SERVICE_HOST"]
    assert "/pod" == environment["POD_ROOT"]


@pytest.mark.parametrize(
    ("container", "message"),
    [
        ({}, "no images here"),
        ({"envFrom": [{"configMapRef": {"name": "none"}}]}, "configmaps/none is not there"),
        (
            {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "some", "key": "b"}}}]},
            "secrets/some has no key b",
        ),
        (
            {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.phase"}}}]},
            "does not know the field status.phase",
        ),
    ],
)
def test_what_is_missing_is_named(container: Object, message: str) -> None:
    def lookup(kind: str, name: str) -> dict[str, bytes] | None:
        return {"a": b""} if (kind, name) == ("secrets", "some") else None

    with pytest.raises(ConfigurationError, match=message):
        recipe({"name": "main", **container}, Image(), AROUND, lookup)


WAITING: Object = {"waiting": {"reason": "ContainerCreating"}}
RUNNING: Object = {"running": {}}


def ended(code: int) -> Object:
    return {"terminated": {"exitCode": code}}


@pytest.mark.parametrize(
    ("states", "over", "expected"),
    [
        ([WAITING], False, "Pending"),
        ([RUNNING, WAITING], False, "Pending"),
        ([ended(0), WAITING], False, "Pending"),
        ([RUNNING], False, "Running"),
        ([ended(1), RUNNING], False, "Running"),
        ([ended(0), ended(0)], True, "Succeeded"),
        ([ended(0), ended(1)], True, "Failed"),
    ],
)
def test_the_phase_follows_from_the_containers(
    states: list[Object], over: bool, expected: str
) -> None:
    containers = [ContainerState("any", "none", state) for state in states]

    assert expected == phase(containers, over)


def test_a_request_for_logs_is_understood() -> None:
    asked = "/containerLogs/ns/pod/main?follow=true&tailLines=3"

    assert Wanted("ns", "pod", "main", previous=False, follow=True, tail=3) == wanted(asked)
    assert wanted("/exec/ns/pod/main") is None
