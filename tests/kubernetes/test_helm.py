"""The chart deploy/helm/understudy: judged, rendered for each mode, and taken by the API server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.house.repository import ROOT
from tests.kubernetes.api import CORE, path
from tests.kubernetes.charts import Helm
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.test_kustomize import RESTRICTED, granted, settings_of, templates
from understudy.version import VERSION

pytestmark = [pytest.mark.kubernetes, pytest.mark.long]

CHART = ROOT / "deploy/helm/understudy"
SCRIPT = "application.script=print(1)"
CASES = {
    "session": (),
    "application": ("--set", "mode=application", "--set", "application.path=/opt/app/etl.py"),
    "script": ("--set", "mode=application", "--set", SCRIPT),
    "tls": ("--set", "tls.secret=tls", "--set", "secret.existing=own"),
    "object store": (
        *("--set", "storage.volume.create=false", "--set", "storage.directory=s3://bucket/x"),
        *("--set", "serviceAccount.existing=own", "--set", "image.pullSecrets={registry}"),
        *("--set", "config.restart-strategy\\.type=none"),
    ),
}


@pytest.fixture(scope="module")
def namespace(kubernetes: ControlPlane) -> Iterator[str]:
    with kubernetes.namespace(RESTRICTED) as name:
        yield name


@pytest.fixture
def helm(tmp_path: Path) -> Helm:
    return Helm(tmp_path)


def rendered(helm: Helm, *words: str) -> list[dict[str, Any]]:
    text = helm.run("template", "flights", str(CHART), *words)
    return [one for one in yaml.safe_load_all(text) if one]


@pytest.mark.parametrize("case", CASES)
def test_each_mode_is_taken_under_restricted_pod_security(
    kubernetes: ControlPlane, helm: Helm, namespace: str, tmp_path: Path, case: str
) -> None:
    helm.run("lint", "--strict", str(CHART), *CASES[case])
    objects = rendered(helm, *CASES[case])
    text = yaml.safe_dump_all(objects)
    said = kubernetes.kubectl("-n", namespace, "apply", "--dry-run=server", "-f", "-", stdin=text)

    assert len(objects) == len(said.splitlines())
    for name, template in templates(objects):
        spec = {**template["spec"], "restartPolicy": "Never"}
        spec.pop("serviceAccountName")
        there = f"{path(CORE, 'pods', namespace=namespace)}?dryRun=All"
        kubernetes.admin.create(there, {"metadata": {"name": name}, "spec": spec})
        for _, configuration in settings_of(objects, template, tmp_path):
            assert "flights" == configuration.settings["high-availability.cluster-id"]


def test_the_chart_grants_what_the_manifests_grant(helm: Helm) -> None:
    manifests = yaml.safe_load_all((ROOT / "deploy/kubernetes/base/rights.yaml").read_text())

    assert granted([*manifests]) == granted(rendered(helm))


def test_what_cannot_be_meant_is_refused(helm: Helm) -> None:
    with pytest.raises(AssertionError, match=r"needs application\.path"):
        rendered(helm, "--set", "mode=application")
    with pytest.raises(AssertionError, match="replica"):
        rendered(helm, "--set", "jobmanager.replica=3")


def test_the_schema_knows_each_value_and_the_chart_has_our_version() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())

    assert values.keys() == schema["properties"].keys() - {"global"}
    assert (VERSION, VERSION) == (chart["version"], chart["appVersion"])
