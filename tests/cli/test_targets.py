"""Commands that ask a JobManager at a URL, with a token of their own."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.sampling import quickly
from understudy.api.authentication import RestSecurity
from understudy.api.remote import RemoteClient
from understudy.cli.commands import ask, targets
from understudy.cli.commands.group import app
from understudy.cli.commands.targets import settings_of
from understudy.config import Configuration, options
from understudy.config.configuration import load_configuration
from understudy.errors import ConfigurationError, UnderstudyError, UsageError

TOKEN = "0123456789abcdef"


@pytest.fixture
def nobody() -> Iterator[str]:
    """Return an address at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize(
    "words",
    quickly([["list"], ["info", "x"], ["artifacts", "list"], ["logs", "x"]], [["list"]]),
)
def test_an_address_where_nobody_listens_is_named(
    words: list[str], nobody: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    soon = ["-D", "rest.await-leader-timeout=0s"]
    told = CliRunner().invoke(app, [*words, "--target", nobody, *soon])
    shown = f"{told.output}{told.exception}"

    assert told.exit_code
    assert f"no JobManager can be reached at {nobody}" in shown or "nobody follows" in shown


def test_a_target_becomes_a_client_that_reads_no_storage(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"alice {TOKEN}\n")
    file.chmod(0o600)
    configuration = Configuration(
        dict(one.split("=", 1) for one in settings_of("https://a:1,http://b:2", file))
    )

    client = asyncio.run(ask._client(configuration, "any"))

    assert isinstance(client, RemoteClient)
    assert ("https://a:1", "http://b:2") == configuration.get(options.TARGET)
    headers = RestSecurity.of(configuration, asks=True).headers()
    assert {"authorization": f"Bearer {TOKEN}"} == headers
    assert {} == RestSecurity.of(configuration).headers()


@pytest.mark.parametrize("how", ["flag", "file"])
def test_the_periods_of_a_cluster_in_pods_are_no_mistake_of_a_command_that_asks_it(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, written = (
        "kubernetes-session",
        ["high-availability.kubernetes.leader-election.lease-duration=15s"],
    )
    said = f"execution.target: {target}\n" if how == "file" else "{}\n"
    (tmp_path / "config.yaml").write_text(said)
    monkeypatch.setattr(targets, "in_pods", lambda _: [f"{options.TARGET.key}=http://pod:8081"])
    found = targets.asked(target if how == "flag" else None, None, written, tmp_path)
    configuration = load_configuration(tmp_path, found)

    assert ("http://pod:8081",) == configuration.get(options.TARGET)
    assert [] == configuration.warnings


@pytest.mark.parametrize("target", ["session", "host:8081", "ftp://host", "http://host/?x", ""])
def test_what_is_no_address_is_refused(target: str) -> None:
    with pytest.raises(UnderstudyError, match="host"):
        Configuration(dict(one.split("=", 1) for one in settings_of(target, None)))


@pytest.mark.parametrize("content", ["", "a b c", "short", f"alice {TOKEN}\nbob {TOKEN}"])
def test_a_file_without_one_token_is_refused(content: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(content)
    file.chmod(0o600)
    with pytest.raises(ConfigurationError, match="expected one token"):
        RestSecurity.of(Configuration({options.BEARER_FILE.key: str(file)}), asks=True)


def test_a_target_without_a_scheme_says_what_is_expected() -> None:
    with pytest.raises(UsageError, match="such as http://host:8081"):
        settings_of("host", None)
