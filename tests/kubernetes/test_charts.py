"""Helm and the control plane together, with the smallest chart there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kubernetes.api import CORE, path
from tests.kubernetes.charts import Helm
from tests.kubernetes.control_plane import ControlPlane

pytestmark = [pytest.mark.kubernetes, pytest.mark.long]

CHART = """\
apiVersion: v2
name: smallest
version: 1.0.0
"""
TEMPLATE = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}
data:
  colour: {{ .Values.colour | quote }}
"""


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    place = tmp_path / "smallest"
    (place / "templates").mkdir(parents=True)
    (place / "Chart.yaml").write_text(CHART)
    (place / "values.yaml").write_text("colour: green\n")
    (place / "templates/settings.yaml").write_text(TEMPLATE)
    return place


def test_a_chart_is_judged_rendered_and_applied(
    kubernetes: ControlPlane, chart: Path, tmp_path: Path
) -> None:
    helm = Helm(tmp_path)
    helm.run("lint", str(chart))
    rendered = helm.run("template", "mine", str(chart), "--set", "colour=blue")

    with kubernetes.namespace() as namespace:
        kubernetes.kubectl("-n", namespace, "apply", "--filename=-", stdin=rendered)

        assert {"colour": "blue"} == kubernetes.admin.get(
            path(CORE, "configmaps", "mine", namespace)
        )["data"]


def test_a_chart_that_cannot_be_rendered_is_refused(chart: Path, tmp_path: Path) -> None:
    (chart / "templates/settings.yaml").write_text("{{ .Values.colour | nothing }}")

    with pytest.raises(AssertionError, match='function "nothing" not defined'):
        Helm(tmp_path).run("template", "mine", str(chart))
