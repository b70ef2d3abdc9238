"""Commands that ask."""

import typer


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
