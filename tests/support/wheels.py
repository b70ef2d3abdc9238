"""Small wheels, built without any tool, and a directory of them: an index without a network."""

from __future__ import annotations

import zipfile
from pathlib import Path

WHEEL = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def wheel(house: Path, name: str, version: str, *needs: str, **files: str) -> Path:
    """Write a pure wheel whose module has a ``VERSION``; return its path.

    ``needs``: the requirements of the package. ``files``: further modules by name.
    """
    house.mkdir(parents=True, exist_ok=True)
    about = f"{name}-{version}.dist-info"
    requires = "".join(f"Requires-Dist: {one}\n" for one in needs)
    members = {
        f"{name}/__init__.py": f"VERSION = {version!r}\n",
        **{f"{module}.py": text for module, text in files.items()},
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}",
        f"{about}/WHEEL": WHEEL,
    }
    listed = "".join(f"{member},,\n" for member in (*members, f"{about}/RECORD"))
    path = house / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, text in members.items():
            archive.writestr(member, text)
        archive.writestr(f"{about}/RECORD", listed)
    return path
