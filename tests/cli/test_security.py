"""Which settings would leave a door open, or half closed; and where processes are to be found."""

from __future__ import annotations

import pytest

from understudy.cli.launch.compose import standalone_rest
from understudy.cli.launch.securing import rest_host, rpc_host, standalone_rpc
from understudy.config import Configuration, options
from understudy.config.configuration import REDACTED
from understudy.config.security import links_over_tcp
from understudy.errors import ConfigurationError

SECRET = {"security.secret-file": "/etc/understudy/secret"}
ALONE = {"high-availability.type": "NONE"}


def refusal(**settings: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        Configuration(named(settings))
    return str(caught.value)


def named(settings: dict[str, str]) -> dict[str, str]:
    return {KEYS[name]: text for name, text in settings.items()}


KEYS = {
    "secret": "security.secret-file",
    "bind": "jobmanager.bind-host",
    "rpc": "jobmanager.rpc.address",
    "rest": "rest.address",
    "rest_bind": "rest.bind-address",
    "host": "taskmanager.host",
    "metrics_bind": "taskmanager.bind-host",
    "internal": "security.ssl.internal.enabled",
    "internal_keys": "security.ssl.internal.keystore",
    "internal_trust": "security.ssl.internal.truststore",
    "internal_pin": "security.ssl.internal.cert.fingerprint",
    "tls": "security.ssl.rest.enabled",
    "tls_keys": "security.ssl.rest.keystore",
    "tls_trust": "security.ssl.rest.truststore",
    "tls_password": "security.ssl.rest.key-password",
    "tls_clients": "security.ssl.rest.authentication-enabled",
}


@pytest.mark.parametrize("address", ["0.0.0.0", "10.1.2.3", "jm"])
def test_links_over_tcp_need_a_secret(address: str) -> None:
    said = refusal(bind=address)

    assert said.startswith(f"jobmanager.bind-host is {address!r}, but security.secret-file is not")


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "10.1.2.3", "128.0.0.1", "host.example"])
def test_rest_that_others_can_reach_needs_a_secret(address: str) -> None:
    said = refusal(rest_bind=address)

    assert said.startswith(f"rest.bind-address is {address!r}, but security.secret-file is not set")


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "0:0:0:0:0:0:0:0"])
@pytest.mark.parametrize(("bind", "published"), [("bind", "rpc"), ("rest_bind", "rest")])
def test_all_addresses_are_none_that_others_can_be_told(
    address: str, bind: str, published: str
) -> None:
    said = refusal(secret="/secret", **{bind: address})

    assert said == (
        f"{KEYS[bind]} is {address!r}, which is every address of this host: set {KEYS[published]} "
        "to the one under which others reach it"
    )
    Configuration(named({"secret": "/secret", bind: address, published: "jm.example"}))


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "::ffff:0.0.0.0"])
@pytest.mark.parametrize(
    ("published", "bind"), [("rpc", "bind"), ("rest", "rest_bind"), ("host", "metrics_bind")]
)
def test_what_is_published_is_one_address(address: str, published: str, bind: str) -> None:
    expected = (
        f"{KEYS[published]} is {address!r}, which is every address of this host, not one that "
        f"others reach: set it to one that they do; {KEYS[bind]} takes {address!r}"
    )

    assert expected == refusal(**{published: address})
    assert expected == refusal(secret="/secret", **{published: address, bind: address})


@pytest.mark.parametrize("key", ["bind", "rpc", "rest", "rest_bind"])
@pytest.mark.parametrize("text", ["a b", "host:80", "[::1]", "-x", "0", "127.1", "0x7f.1", "x/y"])
def test_what_is_no_host_is_refused_by_its_name(key: str, text: str) -> None:
    """``0`` and ``0x7f.1`` are addresses to the system, though they do not look like any."""
    said = refusal(**{key: text, "secret": "/secret"})

    assert said.startswith(f"{KEYS[key]} is {text!r}: expected a host's name or its address")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"tls": "true"}, "security.ssl.rest.enabled is true, but security.ssl.rest.truststore is"),
        (
            {"tls": "true", "tls_trust": "x", "tls_clients": "true"},
            "security.ssl.rest.enabled is true, but security.ssl.rest.keystore is not set",
        ),
        ({"internal": "true"}, "security.ssl.internal.enabled is true, but security.ssl.internal."),
        (
            {"internal": "true", "internal_keys": "x"},
            "security.ssl.internal.enabled is true, but security.ssl.internal.truststore is not",
        ),
        ({"tls_keys": "x"}, "security.ssl.rest.keystore is set, but security.ssl.rest.enabled is"),
        ({"tls_password": "hush"}, "security.ssl.rest.key-password is set, but security.ssl."),
        ({"internal_trust": "x"}, "security.ssl.internal.truststore is set, but security.ssl."),
        ({"internal_pin": "0" * 40}, "security.ssl.internal.cert.fingerprint is set, but "),
    ],
)
def test_half_of_tls_is_refused(settings: dict[str, str], expected: str) -> None:
    said = refusal(**settings)

    assert said.startswith(expected)
    assert "hush" not in said


def test_tls_that_is_switched_off_may_leave_its_files() -> None:
    off = {"tls": "false", "tls_keys": "x", "internal": "false", "internal_trust": "y"}

    assert [] == Configuration(named(off)).warnings


@pytest.mark.parametrize("digits", [40, 64])
def test_a_fingerprint_is_read_with_colons_or_without(digits: int) -> None:
    colons = ":".join(["AB"] * (digits // 2))
    base = {"internal": "true", "internal_keys": "x", "internal_trust": "y"}
    actual = Configuration(named({**base, "internal_pin": colons})).get(
        options.INTERNAL_FINGERPRINT
    )

    assert "ab" * (digits // 2) == actual


def test_the_password_of_a_key_is_hidden_and_the_place_of_the_secret_is_shown() -> None:
    settings = {"tls": "true", "tls_trust": "x", "tls_keys": "y", "tls_password": "hush"}

    shown = Configuration({**named(settings), **SECRET}).redacted()

    assert REDACTED == shown["security.ssl.rest.key-password"]
    assert SECRET["security.secret-file"] == shown["security.secret-file"]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "unix"),
        (SECRET, "unix"),
        ({"jobmanager.bind-host": "127.0.0.1", "jobmanager.rpc.address": "127.0.0.1"}, "unix"),
        ({"jobmanager.bind-host": "127.0.0.2"}, "unix"),
        ({"jobmanager.bind-host": "localhost"}, "unix"),
        ({**ALONE, "jobmanager.bind-host": "::1"}, "unix"),
        ({**SECRET, "jobmanager.rpc.address": "jm"}, "unix"),
        ({**SECRET, "jobmanager.bind-host": "127.0.0.1"}, "tcp"),
        ({**SECRET, **ALONE}, "unix"),
        ({**SECRET, **ALONE, "jobmanager.rpc.address": "jm"}, "tcp"),
        ({**SECRET, **ALONE, "jobmanager.bind-host": "::1"}, "tcp"),
    ],
)
def test_who_listens_on_tcp(settings: dict[str, str], expected: str) -> None:
    actual = links_over_tcp(Configuration(settings))

    assert (expected == "tcp") == actual


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"jobmanager.rpc.address": "jm"}, "tcp://jm:6123"),
        ({"jobmanager.bind-host": "10.0.0.1"}, "tcp://10.0.0.1:6123"),
        ({"jobmanager.bind-host": "::1", "jobmanager.rpc.port": "7000"}, "tcp://[::1]:7000"),
        (
            {"jobmanager.bind-host": "0.0.0.0", "jobmanager.rpc.address": "fd00::1"},
            "tcp://[fd00::1]:6123",
        ),
    ],
)
def test_without_high_availability_all_know_where_the_jobmanager_is(
    settings: dict[str, str], expected: str
) -> None:
    actual = standalone_rpc(Configuration({**SECRET, **ALONE, **settings}))

    assert expected == actual


def test_a_jobmanager_is_called_as_configured_or_as_it_is_bound() -> None:
    bound = {**SECRET, "jobmanager.bind-host": "10.0.0.1", "rest.bind-address": "10.0.0.2"}
    called = {**bound, "jobmanager.rpc.address": "jm", "rest.address": "rest.example"}

    assert ("10.0.0.1", "10.0.0.2") == (
        rpc_host(Configuration(bound)),
        rest_host(Configuration(bound)),
    )
    assert ("jm", "rest.example") == (
        rpc_host(Configuration(called)),
        rest_host(Configuration(called)),
    )
    assert "127.0.0.1" == rest_host(Configuration({}))


def test_the_one_jobmanager_is_asked_in_tls_where_that_is_on() -> None:
    tls = named({"tls": "true", "tls_trust": "x"})

    assert "https://localhost:8081" == standalone_rest(Configuration({**ALONE, **tls}))
    assert "http://localhost:8081" == standalone_rest(Configuration(ALONE))


def test_settings_of_tcp_without_tcp_are_warned_of() -> None:
    idle = {"jobmanager.rpc.address": "jm", "high-availability.jobmanager.port": "6123"}

    warnings = Configuration({**idle, **SECRET}).warnings

    assert [
        "high-availability.jobmanager.port does nothing here: jobmanager.bind-host names no "
        "address that others reach, so links are Unix sockets",
        "jobmanager.rpc.address does nothing here: jobmanager.bind-host names no address that "
        "others reach, so links are Unix sockets",
    ] == warnings
    assert [] == Configuration({**idle, **SECRET, "jobmanager.bind-host": "jm"}).warnings
