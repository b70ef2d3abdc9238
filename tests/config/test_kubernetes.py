"""Options of the Kubernetes backend: legal names, and periods that do not contradict."""

from __future__ import annotations

import pytest

from understudy.config import Configuration, options
from understudy.core.lease import Timing
from understudy.errors import ConfigurationError
from understudy.ha.backends.kubernetes import options as k8s

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
        Configuration({**TYPE, k8s.K8S_CLUSTER_ID.key: name})
