"""What ``high-availability.type: NONE`` means for the other options."""

from __future__ import annotations

import pytest

from understudy.config import Configuration
from understudy.errors import ConfigurationError


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, False),
        ({"high-availability.type": "NONE"}, True),
        ({"high-availability": "none"}, True),
        ({"high-availability.type": "filesystem"}, False),
    ],
)
def test_a_cluster_stands_alone_where_its_type_is_none(
    settings: dict[str, str], expected: bool
) -> None:
    actual = Configuration(settings).is_standalone

    assert expected == actual


@pytest.mark.parametrize("key", ["jobmanager.rpc.address", "rest.address"])
def test_the_one_jobmanager_is_on_this_host_where_there_is_no_secret(key: str) -> None:
    expected = (
        f"{key} is '10.0.0.1', but security.secret-file is not set: anyone who reaches this "
        "address could run code; name a file with a secret of at least 16 bytes "
        "that only you can read"
    )

    with pytest.raises(ConfigurationError) as caught:
        Configuration({"high-availability.type": "NONE", key: "10.0.0.1"})

    assert expected == str(caught.value)
    with_secret = {"security.secret-file": "/secret", key: "10.0.0.1"}
    assert [] == Configuration({"high-availability.type": "NONE", **with_secret}).warnings


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("NONE", []),
        ("filesystem", ["rest.port does nothing here: leaders are found by retrieval"]),
    ],
)
def test_a_configured_address_counts_only_where_nobody_is_elected(
    kind: str, expected: list[str]
) -> None:
    actual = Configuration({"high-availability.type": kind, "rest.port": "8099"}).warnings

    assert expected == actual
