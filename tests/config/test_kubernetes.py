"""Options of the Kubernetes backend: legal names, and periods that do not contradict."""

from __future__ import annotations

from pathlib import Path

import pytest

from understudy.config import Configuration, Option, options
from understudy.config.configuration import load_configuration
from understudy.core.lease import Timing
from understudy.errors import ConfigurationError

TYPE = {options.HA_TYPE.key: "kubernetes"}
OWN = "high-availability.kubernetes.leader-election."
COMMON = "high-availability.leader-election."


def timing(**periods: str) -> Timing:
    """Return the periods of a leader; names have underscores."""
    own = {f"{OWN}{name.replace('_', '-')}": text for name, text in periods.items()}
    return Timing.of(Configuration({**TYPE, **own}))


def test_unset_periods_are_the_common_ones() -> None:
    common = {f"{COMMON}lease-duration": "20 s"}

    assert Timing(15.0, 10.0, 2.0) == timing()
    assert Timing(20.0, 10.0, 2.0) == Timing.of(Configuration({**TYPE, **common}))


def test_flinks_keys_set_the_periods() -> None:
    assert Timing(8.0, 6.0, 1.0) == timing(
        lease_duration="8 s", renew_deadline="6 s", retry_period="1 s"
    )


@pytest.mark.parametrize(
    ("periods", "said"),
    [
        ({"renew_deadline": "15 s"}, r"lease-duration \(15 s\) must be longer than renew-deadline"),
        (
            {"lease_duration": "15 s", "renew_deadline": "15 s", "retry_period": "5 s"},
            "must be longer than renew-deadline",
        ),
        (
            {"retry_period": "9 s"},
            r"renew-deadline \(10 s\) must be longer than retry-period × 1.2",
        ),
        ({"lease_duration": "9 s"}, "must be longer than renew-deadline"),
    ],
    ids=["overlap", "Flink's defaults", "retry", "lease"],
)
def test_a_contradiction_is_refused(periods: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        timing(**periods)


def test_own_and_common_periods_that_differ_are_refused() -> None:
    both = {f"{OWN}retry-period": "1 s", f"{COMMON}retry-period": "2 s"}

    with pytest.raises(ConfigurationError, match="set one of them"):
        Configuration({**TYPE, **both})


def test_a_lease_that_outlives_orphans_is_warned_of() -> None:
    long = {f"{OWN}lease-duration": "40 s"}

    assert any("drivers end before" in text for text in Configuration({**TYPE, **long}).warnings)
    assert not Configuration(TYPE).warnings


def test_a_lease_option_of_another_backend_is_warned_of() -> None:
    warnings = Configuration({f"{OWN}retry-period": "1 s"}).warnings

    assert any("high-availability.type is not kubernetes" in text for text in warnings)


@pytest.mark.parametrize("name", ["Upper", "a_b", "-a", "a-", "a.b", "x" * 46, ""])
def test_a_cluster_id_that_kubernetes_does_not_take_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"kubernetes\.cluster-id"):
        Configuration({**TYPE, options.K8S_CLUSTER_ID.key: name})


@pytest.mark.parametrize(
    ("option", "text", "expected"),
    [
        (options.K8S_JOBMANAGER_LABELS, "team:flights, stage:", {"team": "flights", "stage": ""}),
        (options.K8S_REST_ANNOTATIONS, "a.b/c:x:y z", {"a.b/c": "x:y z"}),
        (options.K8S_SECRETS, "tls:/opt/tls,db:/opt/db", {"tls": "/opt/tls", "db": "/opt/db"}),
        (options.K8S_PULL_SECRETS, "one;two", ("one", "two")),
        (
            options.K8S_TASKMANAGER_TOLERATIONS,
            "key:spot,operator:Exists;key:gpu,operator:Equal,value:yes,effect:NoSchedule",
            (
                {"key": "spot", "operator": "Exists"},
                {"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"},
            ),
        ),
        (
            options.K8S_SECRET_VARIABLES,
            "env:PASS,secret:db,key:password",
            ({"env": "PASS", "secret": "db", "key": "password"},),
        ),
        (options.K8S_JOBMANAGER_CPU, "0.5", 0.5),
        (options.K8S_EXPOSED, "nodeport", "NodePort"),
    ],
    ids=lambda one: getattr(one, "key", ""),
)
def test_what_a_pod_has_is_written_as_in_flink(
    option: Option[object], text: str, expected: object
) -> None:
    assert expected == Configuration({option.key: text}).get(option)


@pytest.mark.parametrize(
    ("key", "text", "said"),
    [
        ("kubernetes.jobmanager.labels", "team", "labels such as"),
        ("kubernetes.jobmanager.labels", "team:two words", "labels such as"),
        ("kubernetes.secrets", "tls:opt/tls", "names of Secrets"),
        ("kubernetes.env.secretKeyRef", "env:PASS,secret:db", "env:NAME,secret:SECRET,key:KEY"),
        ("kubernetes.jobmanager.tolerations", "kay:spot", "tolerations such as"),
        ("kubernetes.jobmanager.tolerations", "tolerationSeconds:soon", "tolerations such as"),
        ("kubernetes.jobmanager.cpu.amount", "0", "a number of CPUs"),
        ("kubernetes.jobmanager.cpu.limit-factor", "0.5", "at least 1"),
        ("kubernetes.service-account", "Me", "the name of an object"),
    ],
)
def test_what_no_pod_can_have_is_refused(key: str, text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Configuration({key: text})


def test_environment_variables_of_pods_are_open_keys() -> None:
    given = {
        "containerized.master.env.A": "1",
        "containerized.taskmanager.env.B": "2",
    }

    assert given == Configuration(given).passed_on("containerized.")


def test_names_of_secrets_are_shown() -> None:
    given = {"kubernetes.secrets": "tls:/opt/tls"}

    assert given == Configuration(given).redacted()


def test_a_labels_map_may_be_written_as_one_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("kubernetes.jobmanager.labels: {team: flights}\n")

    found = load_configuration(tmp_path, []).get(options.K8S_JOBMANAGER_LABELS)

    assert {"team": "flights"} == found
