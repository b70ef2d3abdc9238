"""The manifests of deploy/kubernetes: the API server takes them, and they grant what is asked."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.house.repository import ROOT
from tests.kubernetes.api import CORE, path
from tests.kubernetes.control_plane import ControlPlane
from understudy.config import Configuration, options
from understudy.config.configuration import load_configuration
from understudy.kubernetes import pods, rights

pytestmark = pytest.mark.kubernetes

MANIFESTS = ROOT / "deploy/kubernetes"
CLUSTERS = ("session", "application", "statefulset")
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
MARGIN_S = 25
"""What a TaskManager may take beyond its drain."""


@pytest.fixture(scope="module")
def namespace(kubernetes: ControlPlane) -> Iterator[str]:
    with kubernetes.namespace(RESTRICTED) as name:
        yield name


def rendered(plane: ControlPlane, directory: Path) -> list[dict[str, Any]]:
    """Return what kustomize makes of a directory."""
    return [*yaml.safe_load_all(plane.kubectl("kustomize", str(directory)))]


def templates(objects: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return the pod template of each object that makes pods, with the volumes that it gets."""
    for one in objects:
        if template := one.get("spec", {}).get("template"):
            for claim in one["spec"].get("volumeClaimTemplates", []):
                name = claim["metadata"]["name"]
                claimed = {"name": name, "persistentVolumeClaim": {"claimName": name}}
                template["spec"]["volumes"].append(claimed)
            yield one["metadata"]["name"], template


def with_tls(place: Path) -> Path:
    """Return a session with the component for TLS, beside a copy of what it is made of."""
    directory = place / "tls-session"
    directory.mkdir()
    relative = Path("../" * len(directory.resolve().parts[1:])) / str(MANIFESTS).lstrip("/")
    text = yaml.safe_dump({"resources": [f"{relative}/session"], "components": [f"{relative}/tls"]})
    (directory / "kustomization.yaml").write_text(text)
    return directory


@pytest.mark.parametrize("cluster", [*CLUSTERS, "tls"])
def test_the_api_server_takes_it_and_its_pods_under_restricted_pod_security(
    kubernetes: ControlPlane, namespace: str, tmp_path: Path, cluster: str
) -> None:
    place = with_tls(tmp_path) if cluster == "tls" else MANIFESTS / cluster
    objects = rendered(kubernetes, place)
    text = yaml.safe_dump_all(objects)
    said = kubernetes.kubectl(
        "-n", namespace, "apply", "--dry-run=server", "--filename=-", stdin=text
    )

    assert len(objects) == len(said.splitlines())
    assert "would violate" not in said
    for name, template in templates(objects):
        spec = {**template["spec"], "restartPolicy": "Never"}
        spec.pop("serviceAccountName", None)  # It is not there: nothing is applied.
        pod = {"metadata": {"name": name}, "spec": spec}
        pods_there = path(CORE, "pods", namespace=namespace)
        kubernetes.admin.create(f"{pods_there}?dryRun=All", pod)


def granted(objects: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    """Return what the Role among some objects grants: group, resource, verb."""
    (role,) = (one for one in objects if one["kind"] == "Role")
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_role_grants_what_is_asked_for_and_no_more() -> None:
    asked = [*rights.needed(lease=True), *rights.OPTIONAL]
    expected = {(kind.group, kind.plural, verb) for verb, kind in asked}

    objects = [*yaml.safe_load_all((MANIFESTS / "base/rights.yaml").read_text())]

    assert expected == granted(objects)


def settings_of(
    objects: list[dict[str, Any]], template: dict[str, Any], place: Path
) -> Iterator[tuple[str, Configuration]]:
    """Return the role of each container of a template, and the configuration that it reads."""
    (text,) = (
        one["data"]["config.yaml"] for one in objects if "config.yaml" in one.get("data", {})
    )
    (place / "config.yaml").write_text(text)
    for container in template["spec"]["containers"]:
        words = [word.replace("$(POD_IP)", "10.0.0.1") for word in container["args"]]
        overrides = [word.removeprefix("-D") for word in words if word.startswith("-D")]
        yield words[0], load_configuration(place, overrides)


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_each_setting_is_known_and_a_drain_ends_within_the_grace(
    kubernetes: ControlPlane, tmp_path: Path, cluster: str
) -> None:
    objects = rendered(kubernetes, MANIFESTS / cluster)
    for _, template in templates(objects):
        for role, configuration in settings_of(objects, template, tmp_path):
            if role == "taskmanager":
                drain_s = configuration.get(options.DRAIN_TIMEOUT)
                assert drain_s + MARGIN_S <= template["spec"]["terminationGracePeriodSeconds"]


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_pods_are_as_those_that_understudy_makes_itself(
    kubernetes: ControlPlane, cluster: str
) -> None:
    for _, template in templates(rendered(kubernetes, MANIFESTS / cluster)):
        spec = template["spec"]
        mounts = [one["volumeMounts"] for one in spec["containers"]]
        secret = next(one for one in spec["volumes"] if one["name"] == "secret")
        assert pods.USER == spec["securityContext"]["runAsUser"]
        assert {pods.CONFIG, pods.SECRET, pods.WORK, pods.TMP} < {
            one["mountPath"] for one in mounts[0]
        }
        assert 0o440 == stat.S_IMODE(secret["secret"]["defaultMode"])
