"""The cluster that a command asks: --target and --token-file, declared once for all commands.

Both become settings, so that what reads the configuration need not know of them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from understudy.config import options
from understudy.errors import UsageError

URL = typer.Option(
    "--target",
    metavar="URL",
    help="Ask the JobManager at this URL, or at several with commas between, instead of finding "
    "the cluster by its configuration.",
    show_default=False,
)
TOKEN = typer.Option(
    "--token-file",
    metavar="FILE",
    help="A file with the token to send, of a viewer or an admin.",
    show_default=False,
)

Command = Callable[..., None]


def takes_target(command: Command) -> Command:
    """Add --target and --token-file to a command, which receives them among its ``overrides``."""
    flags = [_flag("target", str, URL), _flag("token_file", Path, TOKEN)]
    own = [*inspect.signature(command, eval_str=True).parameters.values()]

    @functools.wraps(command)
    def typed(**given: Any) -> None:
        settings = settings_of(given.pop("target", None), given.pop("token_file", None))
        given["overrides"] = [*(given.get("overrides") or []), *settings]
        command(**given)

    typed.__signature__ = inspect.Signature([*own, *flags])  # type: ignore[attr-defined]
    typed.__annotations__ = {one.name: one.annotation for one in (*own, *flags)}
    return typed


def settings_of(target: str | None, token_file: Path | None) -> list[str]:
    """Return settings as -D options. Raises `UsageError`."""
    found = []
    if target is not None:
        if "://" not in target:
            raise UsageError(
                f"--target {target}: expected the URL of a JobManager, such as http://host:8081"
            )
        found.append(f"{options.TARGET.key}={target}")
    if token_file is not None:
        found.append(f"{options.BEARER_FILE.key}={token_file.absolute()}")
    return found


def _flag(name: str, kind: Any, option: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        default=None,
        annotation=Annotated[kind | None, option],
    )
