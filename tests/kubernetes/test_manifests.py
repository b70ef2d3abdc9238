"""What is deployed for a command line: tables of manifests, and of what no pod could do."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from understudy.cli.launch.kubernetes_plan import (
    Further,
    application_arguments,
    blueprint,
    completed,
    readable_secrets,
)
from understudy.cli.launch.kubernetes_pods import addresses
from understudy.cli.launch.spark_submit import SparkSubmit
from understudy.cli.launch.spec import RunsAs
from understudy.cli.launch.typed import Typed
from understudy.config import Configuration, options
from understudy.config.configuration import load_configuration
from understudy.errors import UsageError
from understudy.kubernetes.manifests import Blueprint, as_yaml, owned_by

GIVEN = {
    "kubernetes.cluster-id": "flights",
    "kubernetes.container.image.ref": "example/flights:1",
    "high-availability.storageDir": "s3://bucket/understudy",
}
APPLICATION, SESSION = options.KUBERNETES_APPLICATION, options.KUBERNETES_SESSION
Json = dict[str, Any]


def planned(target: str = APPLICATION, **settings: str) -> Blueprint:
    """Return what is deployed; names of settings have double underscores for dots."""
    given = {name.replace("__", ".").replace("_", "-"): text for name, text in settings.items()}
    found = completed(Configuration({**GIVEN, **given}), target)
    return blueprint(
        found, "air", ("local:///opt/app/etl.py", "x") if target == APPLICATION else ()
    )


def manifests(found: Blueprint) -> dict[tuple[str, str], Json]:
    """Return the objects by kind and name."""
    return {(one["kind"], one["metadata"]["name"]): one for _, one in found.objects()}


def command(found: Blueprint) -> list[str]:
    """Return the arguments of a JobManager."""
    spec = manifests(found)["Deployment", "flights"]["spec"]["template"]["spec"]
    words: list[str] = spec["containers"][0]["args"]
    return words


def in_pods(found: Blueprint, tmp_path: Path) -> Configuration:
    """Return the configuration that a pod reads."""
    text = manifests(found)["ConfigMap", "flights-config"]["data"]["config.yaml"]
    (tmp_path / "config.yaml").write_text(text)
    return load_configuration(tmp_path, [])


def test_names_follow_from_the_cluster_id_and_the_deployment_is_the_first() -> None:
    expected = [
        ("Deployment", "flights"),
        ("ConfigMap", "flights-config"),
        ("Secret", "flights-secret"),
        ("Service", "flights-rest"),
        ("Service", "flights"),
    ]

    found = manifests(planned())

    assert expected == [*found]
    assert {"air"} == {one["metadata"]["namespace"] for one in found.values()}
    labels = {"app": "flights", "type": "understudy", "component": "jobmanager"}
    assert all(
        {**one["metadata"]["labels"], **labels} == one["metadata"]["labels"]
        for one in found.values()
    )


def test_a_job_manager_runs_the_application_of_its_run() -> None:
    found = replace(planned(), run_id="monday")

    words = command(found)

    assert ["jobmanager", "--config-dir", "/opt/understudy/conf"] == words[:3]
    assert ["--run-id", "monday", "local:///opt/app/etl.py", "x"] == words[-4:]
    assert ["--host", "$(POD_IP)", "--port", "8081"] == words[words.index("--host") :][:4]
    deployment = manifests(found)["Deployment", "flights"]
    assert "monday" == deployment["metadata"]["labels"]["understudy/run-id"]
    assert "monday" == deployment["spec"]["template"]["metadata"]["labels"]["understudy/run-id"]
    assert {"type": "Recreate"} == deployment["spec"]["strategy"], "no two versions at once"
    assert deployment["spec"]["selector"]["matchLabels"] == {
        "app": "flights",
        "type": "understudy",
        "component": "jobmanager",
    }


def test_a_pod_reads_the_settings_without_those_of_the_command(tmp_path: Path) -> None:
    found = planned(
        kubernetes__config__file="/etc/kubeconfig",
        kubernetes__namespace="air",
        restart_strategy__type="none",
    )

    configuration = in_pods(found, tmp_path)

    assert "kubernetes" == configuration.get(options.HA_TYPE)
    assert "flights" == configuration.get(options.CLUSTER_ID)
    assert APPLICATION == configuration.get(options.EXECUTION_TARGET)
    assert "none" == configuration.settings["restart-strategy.type"]
    assert configuration.find(options.K8S_CONFIG_FILE) is None
    assert not configuration.get(options.SESSION)


def test_a_session_has_no_application(tmp_path: Path) -> None:
    found = planned(SESSION)

    assert in_pods(found, tmp_path).get(options.SESSION)
    assert "--run-id" not in command(found)
    assert "-D" == command(found)[-2]


def test_a_secret_is_made_where_none_is_named() -> None:
    made, named = planned(), planned(security__secret_file="/opt/mine/secret")

    secret = manifests(made)["Secret", "flights-secret"]["data"]["secret"]
    assert len(base64.b64decode(base64.b64decode(secret))) == 32
    assert "security.secret-file=/opt/understudy/secret/secret" in command(made)
    assert ("Secret", "flights-secret") not in manifests(named)
    assert not [word for word in command(named) if word.startswith("security.secret-file")]


def test_the_same_command_has_the_same_content_whatever_its_run_and_secret() -> None:
    first, again = planned(), replace(planned(), run_id="monday")

    assert first.secret != again.secret
    assert first.content() == again.content()
    assert first.content() != planned(kubernetes__jobmanager__cpu__amount="3").content()
    assert first.content() != replace(first, arguments=("local:///other.py",)).content()


@pytest.mark.parametrize(
    ("exposed", "expected"),
    [
        ("ClusterIP", {"type": "ClusterIP"}),
        ("NodePort", {"type": "NodePort", "externalTrafficPolicy": "Local"}),
        ("LoadBalancer", {"type": "LoadBalancer"}),
        ("Headless_ClusterIP", {"type": "ClusterIP", "clusterIP": "None"}),
    ],
)
def test_the_rest_service_is_exposed_as_the_option_says(exposed: str, expected: Json) -> None:
    found = planned(kubernetes__rest_service__exposed__type=exposed)

    spec = manifests(found)["Service", "flights-rest"]["spec"]

    assert expected == {name: spec[name] for name in spec if name not in {"selector", "ports"}}
    names = next(one for one in command(found) if one.startswith("rest.allowed-hosts="))
    assert "flights-rest.air.svc" in names
    assert ("$(HOST_IP)" in names) is (exposed == "NodePort")


def test_a_template_of_task_managers_goes_with_the_configuration(tmp_path: Path) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text("spec: {containers: [{name: understudy-main-container, env: []}]}\n")

    found = planned(kubernetes__pod_template_file__default=str(path))

    data = manifests(found)["ConfigMap", "flights-config"]["data"]
    assert "Pod" == yaml.safe_load(data["taskmanager-pod-template.yaml"])["kind"]
    place = "/opt/understudy/conf/taskmanager-pod-template.yaml"
    assert f"kubernetes.pod-template-file.taskmanager={place}" in command(found)


def test_what_is_owned_has_the_deployment_as_its_owner() -> None:
    owner = owned_by({"metadata": {"name": "flights", "uid": "1"}})

    assert ("Deployment", "flights", "1") == (owner["kind"], owner["name"], owner["uid"])


def test_manifests_are_yaml_of_several_documents() -> None:
    found = planned()

    assert [one for _, one in found.objects()] == [*yaml.safe_load_all(as_yaml(found.objects()))]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"kubernetes.container.image.ref": None}, "name the image"),
        ({"high-availability.storageDir": None}, "name what all pods reach"),
        ({"high-availability.storageDir": "/data"}, "a directory of each pod alone"),
        ({"high-availability.type": "NONE"}, "a leader is found by its register"),
        ({"jobmanager.session": "true"}, "understudy session start"),
    ],
)
def test_what_no_cluster_in_pods_can_do_is_refused(
    settings: dict[str, str | None], said: str
) -> None:
    given = {name: text for name, text in {**GIVEN, **settings}.items() if text is not None}

    with pytest.raises(UsageError, match=said):
        completed(Configuration(given), APPLICATION)


def test_without_a_name_a_cluster_gets_one() -> None:
    given = {name: text for name, text in GIVEN.items() if name != "kubernetes.cluster-id"}

    one, other = (
        completed(Configuration(given), APPLICATION).get(options.K8S_CLUSTER_ID) for _ in range(2)
    )
    named = completed(Configuration({**given, "high-availability.cluster-id": "a"}), APPLICATION)

    assert options.is_legal(one)
    assert one != other
    assert "a" == named.get(options.K8S_CLUSTER_ID)


def test_what_a_config_map_would_show_is_named() -> None:
    key = "spark.hadoop.fs.s3a.secret.key"

    assert [key] == readable_secrets(Configuration({key: "x", "kubernetes.secrets": "a:/b"}))


def test_flags_of_the_application_are_those_of_the_job_manager() -> None:
    said = SparkSubmit("etl", ("/opt/lib.py",), {"spark.executor.memory": "1g"})
    further = Further(("board",), ("s3://b/s",), allow_non_restored=True, claim="CLAIM")

    found = application_arguments(Typed("etl", ("-x",), is_module=True, said=said), further)

    assert (
        *("--name", "etl", "--py-files", "/opt/lib.py", "--conf", "spark.executor.memory=1g"),
        *("--rerun", "board", "--from-savepoint", "s3://b/s", "--allow-non-restored-state"),
        *("--claim-mode", "CLAIM", "-m", "etl", "-x"),
    ) == found
    as_job = Typed("local:///a.py", runs_as=RunsAs.JOB)
    assert ("--as", RunsAs.JOB.value, "local:///a.py") == application_arguments(as_job, Further())


@pytest.mark.parametrize(
    ("app", "conf", "said"),
    [
        ("etl.py", {}, "local:///opt/app/etl.py"),
        ("local:///a.py", {"spark.files": "/data/a.csv"}, "--files /data/a.csv"),
    ],
)
def test_a_file_of_this_machine_is_refused(app: str, conf: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        application_arguments(Typed(app, said=SparkSubmit(conf=conf)), Further())


def test_addresses_for_the_world_outside_come_first() -> None:
    pods: list[Json] = [{"status": {"podIP": "10.0.0.1", "hostIP": "192.0.2.1"}}, {"status": {}}]
    balanced = {"status": {"loadBalancer": {"ingress": [{"hostname": "flights.example"}]}}}
    by_node = {"spec": {"type": "NodePort", "ports": [{"nodePort": 30081}]}}

    assert ["http://flights.example:8081", "http://10.0.0.1:8081"] == [
        *addresses(balanced, pods, "http")
    ]
    assert ["https://192.0.2.1:30081", "https://10.0.0.1:8081"] == [
        *addresses(by_node, pods, "https")
    ]
    assert ["http://10.0.0.1:8081"] == [*addresses(None, pods, "http")]
