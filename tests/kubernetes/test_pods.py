"""Manifests of pods: what options, templates and the cluster say of them. Tables, no server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from understudy.config import Configuration, options
from understudy.errors import ConfigurationError
from understudy.kubernetes.pods import (
    CONFIG,
    JOBMANAGER,
    SECRET,
    TASKMANAGER,
    Component,
    PodPlan,
    Reads,
    pod,
    pod_template,
    selector,
)
from understudy.kubernetes.templates import MAIN_CONTAINER, merged, parsed_template, read_template

IMAGE = {"kubernetes.container.image.ref": "example/flights:1"}
Json = dict[str, Any]


def template(
    component: Component = JOBMANAGER,
    under: Json | None = None,
    settings: dict[str, str] | None = None,
    **plan: Any,
) -> Json:
    """Return the template of a cluster's pods."""
    asked = PodPlan(component, "flights", ["jobmanager", "--host", "$(POD_IP)"], **plan)
    return pod_template(Configuration({**IMAGE, **(settings or {})}), asked, under)


def main(found: Json) -> Json:
    """Return our container."""
    (one,) = [one for one in found["spec"]["containers"] if one["name"] == MAIN_CONTAINER]
    return dict(one)


@pytest.mark.parametrize("component", [JOBMANAGER, TASKMANAGER], ids=lambda one: one.name)
def test_a_pod_passes_restricted_pod_security(component: Component) -> None:
    found = template(component)
    whole, container = found["spec"]["securityContext"], main(found)["securityContext"]

    assert whole["runAsNonRoot"]
    assert whole["runAsUser"] == whole["fsGroup"] > 0
    assert {"type": "RuntimeDefault"} == whole["seccompProfile"]
    assert {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    } == container


def test_what_must_be_writable_goes_with_the_pod() -> None:
    found = template(config_map="flights-config", secret="flights-secret")
    mounts = {one["mountPath"]: one for one in main(found)["volumeMounts"]}
    sources = {one["name"]: one for one in found["spec"]["volumes"]}
    writable = [path for path, one in mounts.items() if not one.get("readOnly")]

    assert ["/var/lib/understudy", "/tmp"] == writable
    assert all("emptyDir" in sources[mounts[path]["name"]] for path in writable)
    assert {"name": "flights-config"} == sources[mounts[CONFIG]["name"]]["configMap"]
    assert "flights-secret" == sources[mounts[SECRET]["name"]]["secret"]["secretName"]


def test_options_say_what_a_pod_has() -> None:
    found = template(
        TASKMANAGER,
        settings={
            "kubernetes.taskmanager.cpu.amount": "1.5",
            "kubernetes.taskmanager.cpu.limit-factor": "2",
            "taskmanager.memory.process.size": "3 gb",
            "kubernetes.taskmanager.labels": "team:flights",
            "kubernetes.taskmanager.annotations": "a/b:c",
            "kubernetes.taskmanager.node-selector": "disk:ssd",
            "kubernetes.taskmanager.tolerations": "key:spot,operator:Exists,tolerationSeconds:60",
            "kubernetes.taskmanager.service-account": "worker",
            "kubernetes.container.image.pull-policy": "Always",
            "kubernetes.container.image.pull-secrets": "registry",
            "kubernetes.secrets": "tls:/opt/tls",
            "kubernetes.env.secretKeyRef": "env:PASS,secret:db,key:password",
            "containerized.taskmanager.env.COLOUR": "blue",
            "containerized.master.env.SHAPE": "round",
        },
    )
    spec, container = found["spec"], main(found)
    variables = {one["name"]: one for one in container["env"]}

    assert {"team": "flights", **selector("flights", TASKMANAGER)} == found["metadata"]["labels"]
    assert {"a/b": "c"} == found["metadata"]["annotations"]
    assert {
        "requests": {"cpu": "1500m", "memory": "3072Mi"},
        "limits": {"cpu": "3", "memory": "3072Mi"},
    } == container["resources"]
    assert {"disk": "ssd"} == spec["nodeSelector"]
    assert [{"key": "spot", "operator": "Exists", "tolerationSeconds": 60}] == spec["tolerations"]
    assert ("worker", [{"name": "registry"}]) == (
        spec["serviceAccountName"],
        spec["imagePullSecrets"],
    )
    assert ("example/flights:1", "Always") == (container["image"], container["imagePullPolicy"])
    assert {"name": "db", "key": "password"} == variables["PASS"]["valueFrom"]["secretKeyRef"]
    assert "blue" == variables["COLOUR"]["value"]
    assert "SHAPE" not in variables
    assert "/opt/tls" in [one["mountPath"] for one in container["volumeMounts"]]


def test_a_task_manager_asks_for_a_cpu_for_each_slot() -> None:
    found = template(TASKMANAGER, settings={options.SLOTS.key: "3"})

    assert "3" == main(found)["resources"]["requests"]["cpu"]


def test_a_drain_comes_on_top_of_the_grace_period() -> None:
    graces = [
        template(TASKMANAGER, settings={options.DRAIN_TIMEOUT.key: said})["spec"][
            "terminationGracePeriodSeconds"
        ]
        for said in ("0", "90500 ms")
    ]

    assert [30, 121] == graces


def test_ours_wins_over_a_template_where_we_own_it() -> None:
    under = parsed_template(
        f"""
        kind: Pod
        metadata:
          name: theirs
          labels: {{app: theirs, team: flights}}
        spec:
          containers:
            - name: sidecar
              image: example/sidecar
            - name: {MAIN_CONTAINER}
              image: theirs
              args: [theirs]
              env: [{{name: HOME, value: /theirs}}, {{name: COLOUR, value: blue}}]
              volumeMounts: [{{name: data, mountPath: /data}}]
          volumes: [{{name: data, persistentVolumeClaim: {{claimName: data}}}}]
        """,
        "the file",
    )

    found = template(under=under)
    container = main(found)
    variables = {one["name"]: one.get("value") for one in container["env"]}

    assert [MAIN_CONTAINER, "sidecar"] == [one["name"] for one in found["spec"]["containers"]]
    assert "name" not in found["metadata"]
    assert {"team": "flights", **selector("flights", JOBMANAGER)} == found["metadata"]["labels"]
    assert ("example/flights:1", "jobmanager") == (container["image"], container["args"][0])
    assert ("/var/lib/understudy", "blue") == (variables["HOME"], variables["COLOUR"])
    assert "/data" in [one["mountPath"] for one in container["volumeMounts"]]
    assert {"data", "work", "tmp"} == {one["name"] for one in found["spec"]["volumes"]}


def test_pods_of_one_kind_are_spread_over_the_nodes() -> None:
    (found,) = template(TASKMANAGER)["spec"]["topologySpreadConstraints"]

    assert selector("flights", TASKMANAGER) == found["labelSelector"]["matchLabels"]
    assert ("kubernetes.io/hostname", "ScheduleAnyway") == (
        found["topologyKey"],
        found["whenUnsatisfiable"],  # One node is enough.
    )


def test_a_template_wins_where_nobody_has_set_an_option() -> None:
    under: Json = {
        "spec": {
            "topologySpreadConstraints": [],
            "securityContext": {"runAsUser": 5, "fsGroup": 5},
            "serviceAccountName": "theirs",
            "terminationGracePeriodSeconds": 90,
            "volumes": [{"name": "work", "ephemeral": {"volumeClaimTemplate": {}}}],
            "containers": [
                {
                    "name": MAIN_CONTAINER,
                    "imagePullPolicy": "Never",
                    "resources": {"requests": {"cpu": "7"}},
                    "livenessProbe": {"exec": {"command": ["true"]}},
                }
            ],
        }
    }

    found = template(under=under, ports={"rest": 8081}, probed=Reads.HTTP)
    spec, container = found["spec"], main(found)
    (work,) = [one for one in spec["volumes"] if one["name"] == "work"]

    assert (True, 5) == (
        spec["securityContext"]["runAsNonRoot"],
        spec["securityContext"]["runAsUser"],
    )
    assert [] == spec["topologySpreadConstraints"]
    assert ("theirs", 90) == (spec["serviceAccountName"], spec["terminationGracePeriodSeconds"])
    assert "emptyDir" not in work
    assert ("Never", "7") == (
        container["imagePullPolicy"],
        container["resources"]["requests"]["cpu"],
    )
    assert "httpGet" not in container["livenessProbe"]
    assert "/readyz" == container["readinessProbe"]["httpGet"]["path"]


def test_an_option_wins_over_a_template() -> None:
    under: Json = {
        "spec": {
            "serviceAccountName": "theirs",
            "tolerations": [{"key": "a", "operator": "Exists"}],
            "containers": [{"name": MAIN_CONTAINER, "resources": {"limits": {"cpu": "7"}}}],
        }
    }

    found = template(
        under=under,
        settings={
            "kubernetes.service-account": "ours",
            "kubernetes.jobmanager.cpu.amount": "2",
            "kubernetes.jobmanager.tolerations": "key:b,operator:Exists",
        },
    )

    assert "ours" == found["spec"]["serviceAccountName"]
    assert "2" == main(found)["resources"]["limits"]["cpu"]
    assert ["a", "b"] == [one["key"] for one in found["spec"]["tolerations"]]


def test_a_pod_has_a_name_and_an_owner_and_is_not_restarted() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "flights", "uid": "1"}

    found = pod(
        Configuration(IMAGE),
        PodPlan(TASKMANAGER, "flights", ["taskmanager"]),
        name="flights-taskmanager-1",
        owner=owner,
    )

    assert ("v1", "Pod") == (found["apiVersion"], found["kind"])
    assert ("flights-taskmanager-1", [owner]) == (
        found["metadata"]["name"],
        found["metadata"]["ownerReferences"],
    )
    assert "Never" == found["spec"]["restartPolicy"]


def test_merging_changes_neither() -> None:
    under, over = {"a": {"b": 1}, "env": [{"name": "x"}]}, {"a": {"c": 2}, "env": [{"name": "y"}]}

    assert {"a": {"b": 1, "c": 2}, "env": [{"name": "y"}, {"name": "x"}]} == merged(under, over)
    assert ({"b": 1}, [{"name": "x"}]) == (under["a"], under["env"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{a: b", "is not YAML"),
        ("kind: Deployment", "is no pod"),
        ("kind: Pod\nspec: [a]", "must be mappings"),
        ("spec: {containers: [{image: x}]}", "each item of containers must have 'name'"),
        ("spec: {volumes: data}", "each item of volumes must have 'name'"),
        (
            "spec: {containers: [{name: c, env: [{value: x}]}]}",
            "containers: c: each item of env must have 'name'",
        ),
    ],
)
def test_a_template_that_is_no_pod_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        parsed_template(text, "kubernetes.pod-template-file.default: pod.yaml")


def test_a_template_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = str(tmp_path / "pod.yaml")

    with pytest.raises(ConfigurationError, match=r"pod\.yaml cannot be read"):
        read_template(options.K8S_TEMPLATE.key, path)
