"""What of a configuration is shown, and where things lie by default."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from understudy.config import Configuration, options
from understudy.config.configuration import REDACTED, redact, state_home
from understudy.errors import ConfigurationError


@pytest.mark.parametrize(
    "key",
    [
        "spark.ssl.keyStorePassword",
        "spark.authenticate.secret",
        "spark.hadoop.fs.azure.account.key.x",
        "spark.apikey",
        "spark.api-key",
        "spark.auth-params",
        "spark.service-key",
        "spark.hadoop.token",
        "spark.basic-auth",
        "spark.jaas.config",
        "spark.http-headers",
        "spark.hadoop.fs.s3a.access-key",
        "spark.hadoop.fs.s3a.access.key",
        "spark.hadoop.accessKey",
        "spark.CREDENTIALS",
    ],
)
def test_what_looks_like_a_secret_is_hidden(key: str) -> None:
    expected = {key: REDACTED, "spark.app.name": "shown"}

    actual = redact({key: "hush", "spark.app.name": "shown"})

    assert expected == actual


def test_further_keys_are_hidden_where_they_are_named() -> None:
    settings = {
        "security.redaction.additional-keys": "PIN;puk",
        "spark.my.pin": "1",
        "spark.Puk": "2",
        "spark.x": "3",
        "spark.password": "4",
    }
    expected = {
        **settings,
        "spark.my.pin": REDACTED,
        "spark.Puk": REDACTED,
        "spark.password": REDACTED,
    }

    actual = Configuration(settings).redacted()

    assert expected == actual


def test_a_bad_value_of_a_secret_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("understudy.config.configuration._SECRET_PARTS", ("heartbeat",))

    with pytest.raises(ConfigurationError) as caught:
        Configuration({"heartbeat.interval": "hush"})

    assert str(caught.value).startswith("heartbeat.interval is ******: expected a duration")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"notify.url": "https://host"}, "https://host"),
        ({"notify.url": "http://127.0.0.1:80/"}, "http://127.0.0.1:80/"),
        ({"notify.url": "https://host:8443/services/T0/hush"}, "https://host:8443/******"),
        ({"notify.url": "https://host?key=hush"}, "https://host/******"),
        ({"notify.url": "https://me:hush@host/hook"}, REDACTED),
        ({"high-availability.storageDir": "s3://me:hush@bucket/ha"}, REDACTED),
        ({"high-availability.storageDir": "s3://bucket/a@b"}, "s3://bucket/a@b"),
        ({"spark.x": "first,https://hush@host/"}, REDACTED),
    ],
)
def test_of_an_address_what_may_be_a_secret_is_hidden(
    settings: dict[str, str], expected: str
) -> None:
    (actual,) = Configuration(settings).redacted().values()

    assert expected == actual


@pytest.mark.parametrize(
    "text",
    [
        "ftp://host/hush",
        "host",
        "http://",
        "http://host:99999/hush",
        "http://host:0/",
        "http://[::1",
        "https://me:hush@",
        "http://a b/",
        "http://host/hook\nx",
        "file:///hush",
    ],
)
def test_only_an_address_with_http_or_https_is_posted_to(text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Configuration({"notify.url": text})

    assert str(caught.value).startswith("notify.url is ")
    assert str(caught.value).endswith(
        "expected an address such as 'https://host/path', with http or https"
    )
    assert "me:hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "expected"),
    [("/state", "/state/understudy"), ("", "/me/.local/state/understudy")],
)
def test_state_lies_where_the_desktop_says(
    monkeypatch: pytest.MonkeyPatch, variable: str, expected: str
) -> None:
    monkeypatch.setenv("HOME", "/me")
    monkeypatch.setenv("XDG_STATE_HOME", variable)

    assert Path(expected) == state_home()


def test_storage_and_logs_lie_below_the_state_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    told = Configuration({"high-availability.storageDir": "s3://b/ha", "env.log.dir": "/logs"})
    expected = [
        ("/state/understudy/ha", Path("/state/understudy/logs")),
        ("s3://b/ha", Path("/logs")),
    ]

    actual = [(each.storage_dir, each.log_dir) for each in (Configuration(), told)]

    assert expected == actual


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("ha", "/srv/ha"),
        ("../ha2", "/ha2"),
        ("/srv/../ha2//", "/ha2"),
        ("//data//ha", "/data/ha"),
        ("file:///data//ha", "/data/ha"),
        ("local:///data/ha/", "/data/ha"),
        ("s3://bucket//ha", "s3://bucket//ha"),
    ],
)
def test_a_storage_directory_is_absolute_and_spelt_as_spark_does(
    monkeypatch: pytest.MonkeyPatch, written: str, expected: str
) -> None:
    monkeypatch.setattr(os, "getcwd", lambda: "/srv")

    assert expected == Configuration({"high-availability.storageDir": written}).storage_dir


@pytest.mark.parametrize(
    ("written", "expected"),
    [("/data//x/../cp", "/data/cp"), ("file:///data/cp/", "/data/cp"), ("points", "points")],
)
def test_a_directory_of_checkpoints_is_spelt_as_spark_does(written: str, expected: str) -> None:
    told = Configuration({options.CHECKPOINTS_DIR.key: written})

    assert expected == told.find(options.CHECKPOINTS_DIR)
