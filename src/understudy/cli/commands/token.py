"""The command that prints REST tokens: understudy token."""

from __future__ import annotations

import secrets
from typing import Annotated

import typer

from understudy.api.authentication import token_of
from understudy.api.tokens import checked_name
from understudy.cli.commands.common import ConfigDir, Overrides, configured
from understudy.config import options
from understudy.errors import UsageError
from understudy.rpc.secret import read_secret


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command("token")(token)


def token(
    overrides: Overrides = None,
    config_dir: ConfigDir = None,
    new: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Print a new token with this name instead: a line for the file of "
            "security.rest.admins-file or security.rest.viewers-file.",
        ),
    ] = "",
) -> None:
    """Print the REST token: curl -H "Authorization: Bearer $(understudy token)"."""
    if new:
        typer.echo(f"{checked_name(new)} {secrets.token_hex(32)}")
        return
    path = configured(config_dir, overrides).find(options.SECRET_FILE)
    if not path:
        raise UsageError(f"{options.SECRET_FILE.key} is not set: such a cluster asks for no token")
    typer.echo(token_of(read_secret(path)))
