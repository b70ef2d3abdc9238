"""The kubelet without containers: pods that run as on any node, as far as tests need it."""

from __future__ import annotations

import base64
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.api import CORE, await_that, path
from tests.kubernetes.control_plane import ControlPlane, need
from tests.kubernetes.faults import FaultyApi, refused
from tests.kubernetes.kubelet.images import Image
from tests.kubernetes.nodes import Node, await_phase, await_ready, understudy_image
from understudy.version import VERSION

pytestmark = pytest.mark.kubernetes

GREETER = Image(("sh", "-c"), ("echo $GREETING",), {"GREETING": "from the image"})
IMAGES = {"greeter": GREETER, "understudy": understudy_image()}

SETTINGS = """
echo "$WHO lives in $NAMESPACE at $ADDRESS with $SECRET and $COLOUR"
cat /etc/settings/colour
cat /etc/settings/colour > {written}
test -s "$POD_ROOT/var/run/secrets/kubernetes.io/serviceaccount/token" && echo has a token
"""

ASKS = """
import os, pathlib, ssl, urllib.error, urllib.request
files = pathlib.Path(os.environ["POD_ROOT"], "var/run/secrets/kubernetes.io/serviceaccount")
context = ssl.create_default_context(cafile=files / "ca.crt")
url = "https://{KUBERNETES_SERVICE_HOST}:{KUBERNETES_SERVICE_PORT}/api".format(**os.environ)
headers = {"Authorization": "Bearer " + (files / "token").read_text()}
for _ in range(2):
    try:
        request = urllib.request.Request(url, headers=headers)
        print(urllib.request.urlopen(request, context=context).status)
    except urllib.error.HTTPError as error:
        print(error.code)
"""

STUBBORN = "trap 'echo asked' TERM; echo up; while :; do sleep 0.05; done"
OBLIGING = "trap 'echo asked; exit 0' TERM; echo up; while :; do sleep 0.05; done"


@pytest.fixture(scope="module")
def node(kubernetes: ControlPlane) -> Iterator[Node]:
    with Node(kubernetes, "node-1", IMAGES) as one:
        yield one


@pytest.fixture
def namespace(kubernetes: ControlPlane, node: Node) -> Iterator[str]:
    with kubernetes.namespace() as name:
        yield name


def shell(script: str, **container: Any) -> dict[str, Any]:
    return {"name": "main", "image": "none", "command": ["sh", "-c", script], **container}


def start(
    plane: ControlPlane, namespace: str, container: dict[str, Any], **spec: Any
) -> dict[str, Any]:
    body = {"restartPolicy": "Never", "containers": [container], **spec}
    pods = path(CORE, "pods", namespace=namespace)
    return plane.admin.create(pods, {"metadata": {"name": "pod"}, "spec": body})


def pod(namespace: str) -> str:
    return path(CORE, "pods", "pod", namespace)


def test_a_pod_runs_its_command_and_ends_as_the_command_does(
    kubernetes: ControlPlane, namespace: str
) -> None:
    start(kubernetes, namespace, shell("echo done; exit 3"))

    found = await_phase(kubernetes, namespace, "pod", "Failed")

    (container,) = found["status"]["containerStatuses"]
    assert 3 == container["state"]["terminated"]["exitCode"]
    assert "done\n" == kubernetes.kubectl("-n", namespace, "logs", "pod")


def test_an_image_stands_for_what_the_kubelet_was_given(
    kubernetes: ControlPlane, namespace: str
) -> None:
    start(kubernetes, namespace, {"name": "main", "image": "greeter"})

    await_phase(kubernetes, namespace, "pod", "Succeeded")

    assert "from the image\n" == kubernetes.kubectl("-n", namespace, "logs", "pod")


def test_an_image_with_this_checkout_runs_its_commands(
    kubernetes: ControlPlane, namespace: str
) -> None:
    start(kubernetes, namespace, {"name": "main", "image": "understudy", "args": ["--version"]})

    await_phase(kubernetes, namespace, "pod", "Succeeded")

    assert VERSION in kubernetes.kubectl("-n", namespace, "logs", "pod")


def test_a_pod_finds_the_api_server_by_its_token_on_the_way_that_its_node_has(
    kubernetes: ControlPlane, namespace: str
) -> None:
    where = {"kubernetes.io/hostname": "node-4"}
    ask = {"name": "main", "image": "none", "command": [sys.executable, "-c", ASKS]}
    with FaultyApi(kubernetes) as faulty, Node(kubernetes, "node-4", api=faulty.url) as node:
        with faulty.fault(refused(503, "ServiceUnavailable"), pattern="^/api$", times=1):
            start(kubernetes, namespace, ask, nodeSelector=where)
            await_phase(kubernetes, namespace, "pod", "Succeeded")

        assert "503\n200\n" == node.output(namespace, "pod")


def test_variables_and_files_come_from_fields_config_maps_and_secrets(
    kubernetes: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    admin = kubernetes.admin
    secret = {"word": base64.b64encode(b"a secret").decode()}
    for kind, data in (("configmaps", {"colour": "green\n"}), ("secrets", secret)):
        body = {"metadata": {"name": "settings"}, "data": data}
        admin.create(path(CORE, kind, namespace=namespace), body)
    environment = [
        {"name": "WHO", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        {"name": "ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "settings", "key": "word"}}},
        {"name": "COLOUR", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "colour"}}},
    ]
    written = tmp_path / "written"
    container = shell(
        SETTINGS.format(written=written),
        env=environment,
        volumeMounts=[{"name": "settings", "mountPath": "/etc/settings"}],
    )
    volume = {"name": "settings", "configMap": {"name": "settings"}}
    start(kubernetes, namespace, container, volumes=[volume])

    found = await_phase(kubernetes, namespace, "pod", "Succeeded")

    address = found["status"]["podIP"]
    expected = f"pod lives in {namespace} at {address} with a secret and green\ngreen\nhas a token"
    output = kubernetes.kubectl("-n", namespace, "logs", "pod")
    assert expected.split() == output.split()
    assert "green\n" == written.read_text()


def test_a_pod_waits_for_what_it_refers_to_and_says_so(
    kubernetes: ControlPlane, namespace: str
) -> None:
    source = {"secretRef": {"name": "later"}}
    start(kubernetes, namespace, shell("echo $WORD", envFrom=[source]))

    def message() -> str:
        containers = kubernetes.admin.get(pod(namespace))["status"].get("containerStatuses", [])
        return "".join(one["state"].get("waiting", {}).get("message", "") for one in containers)

    await_that("the pod says what it waits for", lambda: "secrets/later" in message())
    body = {"metadata": {"name": "later"}, "stringData": {"WORD": "here"}}
    kubernetes.admin.create(path(CORE, "secrets", namespace=namespace), body)

    await_phase(kubernetes, namespace, "pod", "Succeeded")
    assert "here\n" == kubernetes.kubectl("-n", namespace, "logs", "pod")


def test_a_pod_is_ready_when_its_probe_says_so(
    kubernetes: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    flag = tmp_path / "ready"
    probe = {"exec": {"command": ["test", "-e", str(flag)]}, "periodSeconds": 1}
    start(kubernetes, namespace, shell("exec sleep 60", readinessProbe=probe))
    await_phase(kubernetes, namespace, "pod")
    await_ready(kubernetes, namespace, "pod", ready=False)

    flag.touch()

    await_ready(kubernetes, namespace, "pod")


def test_a_container_that_ends_is_started_again(
    kubernetes: ControlPlane, namespace: str, node: Node
) -> None:
    start(kubernetes, namespace, shell("echo run; exec sleep 60"), restartPolicy="Always")
    await_ready(kubernetes, namespace, "pod")
    node.signal(signal.SIGKILL, namespace, "pod")

    def restarted() -> bool:
        (one,) = kubernetes.admin.get(pod(namespace))["status"]["containerStatuses"]
        return bool(one["ready"] and one["restartCount"] == 1)

    await_that("it runs again", restarted)
    await_that("it has run twice", lambda: node.output(namespace, "pod") == "run\nrun\n")
    assert "run\n" == kubernetes.kubectl("-n", namespace, "logs", "-p", "pod")


def test_init_containers_come_first_one_after_the_other(
    kubernetes: ControlPlane, namespace: str
) -> None:
    shared = {"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}
    inits = [
        {**shell(f"echo {word} >> /shared/words", **shared), "name": word} for word in ("a", "b")
    ]
    volume = {"name": "shared", "emptyDir": {}}
    main = shell("cat /shared/words", **shared)
    start(kubernetes, namespace, main, initContainers=inits, volumes=[volume])

    await_phase(kubernetes, namespace, "pod", "Succeeded")

    assert "a\nb\n" == kubernetes.kubectl("-n", namespace, "logs", "pod")


@pytest.mark.long  # the controller that binds it takes its time
def test_a_persistent_volume_outlives_its_pod(
    kubernetes: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Mi"}}}
    chosen = {"storageClassName": "", "volumeName": namespace}
    claim = {"metadata": {"name": "data"}, "spec": {**spec, **chosen}}
    volume = {
        "capacity": {"storage": "1Mi"},
        "accessModes": ["ReadWriteMany"],
        "hostPath": {"path": str(tmp_path)},
        "claimRef": {"name": "data", "namespace": namespace},
        "persistentVolumeReclaimPolicy": "Retain",
    }
    body = {"metadata": {"name": namespace}, "spec": volume}
    kubernetes.admin.create(f"{CORE}/persistentvolumes", body)
    kubernetes.admin.create(path(CORE, "persistentvolumeclaims", namespace=namespace), claim)
    mounted = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    claimed = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    try:
        start(kubernetes, namespace, shell("echo kept > /data/file", **mounted), volumes=[claimed])
        await_phase(kubernetes, namespace, "pod", "Succeeded")
    finally:
        kubernetes.admin.delete(f"{CORE}/persistentvolumes/{namespace}")

    assert "kept\n" == (tmp_path / "file").read_text()


def test_a_node_is_drained(kubernetes: ControlPlane, namespace: str) -> None:
    with Node(kubernetes, "node-3") as drained:
        name = {"kubernetes.io/hostname": "node-3"}
        start(kubernetes, namespace, shell(OBLIGING), nodeSelector=name)
        await_that("it is up", lambda: "up" in _output(drained, namespace))

        kubernetes.kubectl("drain", "node-3", "--force", "--timeout=30s")

        assert kubernetes.admin.find(pod(namespace)) is None
        assert "up\nasked\n" == drained.output(namespace, "pod")


def test_a_deleted_pod_is_asked_to_end_and_gone_when_it_has(
    kubernetes: ControlPlane, namespace: str, node: Node
) -> None:
    start(kubernetes, namespace, shell(OBLIGING))
    await_that("it is up", lambda: "up" in _output(node, namespace))

    kubernetes.admin.delete(pod(namespace), gracePeriodSeconds=60)

    await_that("it is gone", lambda: kubernetes.admin.find(pod(namespace)) is None, 20)
    assert "up\nasked\n" == node.output(namespace, "pod")


def test_a_pod_that_does_not_end_is_killed_with_all_that_it_has_started(
    kubernetes: ControlPlane, namespace: str, node: Node, tmp_path: Path
) -> None:
    escaped = tmp_path / "escaped"
    script = f"setsid sh -c 'echo $$$$ > {escaped}; exec sleep 60' & {STUBBORN}"
    start(kubernetes, namespace, shell(script))
    await_that("it is up", lambda: escaped.exists() and escaped.read_text().endswith("\n"))
    await_that("it traps the signal", lambda: "up" in _output(node, namespace))

    kubernetes.admin.delete(pod(namespace), gracePeriodSeconds=1)

    await_that("it is gone", lambda: kubernetes.admin.find(pod(namespace)) is None, 20)
    assert "up\nasked\n" == node.output(namespace, "pod")
    assert not _lives(int(escaped.read_text()))


def test_on_a_node_that_is_cut_off_a_pod_goes_on_though_its_object_is_gone(
    kubernetes: ControlPlane, namespace: str, node: Node
) -> None:
    start(kubernetes, namespace, shell("exec sleep 60"))
    await_ready(kubernetes, namespace, "pod")
    pid = node.pid(namespace, "pod")
    node.cut_off()
    try:
        kubernetes.admin.delete(pod(namespace), gracePeriodSeconds=0)
        assert kubernetes.admin.find(pod(namespace)) is None
        assert _lives(pid)
    finally:
        node.rejoin()

    await_that("the kubelet kills what the API server does not know", lambda: not _lives(pid))


@pytest.mark.long
def test_while_the_api_server_is_away_pods_go_on_and_what_happened_is_told_afterwards(
    tmp_path: Path,
) -> None:
    need()
    with ControlPlane(tmp_path, controllers=False) as plane, Node(plane, "node-1") as node:
        plane.service_account("default", "default")
        alone = {"nodeName": "node-1", "automountServiceAccountToken": False}
        start(plane, "default", shell("exec sleep 60"), restartPolicy="Always", **alone)
        await_ready(plane, "default", "pod")
        pid = node.pid("default", "pod")
        plane.api_server.kill()
        node.signal(signal.SIGKILL, "default", "pod")
        await_that("it runs again", lambda: node.pid("default", "pod") != pid)
        plane.start()

        def told() -> bool:
            (one,) = plane.admin.get(pod("default"))["status"]["containerStatuses"]
            return bool(one["ready"] and one["restartCount"] == 1)

        await_that("the API server knows", told)


@pytest.mark.long
def test_with_its_node_a_pod_dies_and_the_api_server_notices(
    kubernetes: ControlPlane, namespace: str
) -> None:
    with Node(kubernetes, "node-2") as lost:
        name = {"kubernetes.io/hostname": "node-2"}
        start(kubernetes, namespace, shell("exec sleep 60"), nodeSelector=name)
        await_ready(kubernetes, namespace, "pod")
        pid = lost.pid(namespace, "pod")
        lost.lose()

        assert not _lives(pid)
        await_that("the node is not ready", lambda: not lost.is_ready())
        await_ready(kubernetes, namespace, "pod", ready=False)


def _output(node: Node, namespace: str) -> str:
    try:
        return node.output(namespace, "pod")
    except ValueError:  # its directory is not there
        return ""


def _lives(pid: int) -> bool:
    """Say whether a process lives; one that nobody has reaped yet does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
