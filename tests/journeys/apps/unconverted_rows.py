"""A module beside a script."""

from pathlib import Path


def append(target: str, row: str) -> None:
    with Path(target).open("a") as file:
        file.write(f"{row}\n")
