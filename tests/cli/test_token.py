"""`understudy token`: the cluster's token, and new ones for the files of tokens."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from understudy.api.authentication import token_of
from understudy.api.tokens import Role, TokenFile
from understudy.cli.commands import token
from understudy.errors import UsageError


def said(*words: str) -> str:
    """Return what the command prints."""
    app = typer.Typer()
    token.register(app)
    done = CliRunner().invoke(app, [*words])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output


def test_a_new_token_is_a_line_that_a_file_takes(tmp_path: Path) -> None:
    path = tmp_path / "viewers"
    lines = [said("--new", "alice"), said("--new", "alice")]
    path.write_text("".join(lines))
    path.chmod(0o600)
    TokenFile("security.rest.viewers-file", str(path), Role.VIEWER).read()

    assert len(set(lines)) == 2
    assert all(line.startswith("alice ") and len(line.split()[1]) == 64 for line in lines)


@pytest.mark.parametrize("name", ["<b>", "a b", "x" * 65])
def test_a_name_that_no_line_can_have_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="is no name"):
        said("--new", name)


def test_the_token_of_the_cluster_follows_from_its_secret(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("a secret of this test\n")
    path.chmod(0o600)

    assert f"{token_of(b'a secret of this test')}\n" == said("-D", f"security.secret-file={path}")
