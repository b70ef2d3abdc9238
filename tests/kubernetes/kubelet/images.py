"""What the name of an image stands for on this machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Image:
    """What an image says of its program: a command line, and what the program finds around it."""

    entrypoint: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: str | None = None


def write(path: Path, images: Mapping[str, Image]) -> None:
    """Write down images by name, for `read`."""
    path.write_text(json.dumps({name: asdict(image) for name, image in images.items()}))


def read(path: Path) -> dict[str, Image]:
    """Return the images that were written down."""
    return {
        name: Image(
            tuple(one["entrypoint"]),
            tuple(one["arguments"]),
            one["environment"],
            one["directory"],
        )
        for name, one in json.loads(path.read_text()).items()
    }
