"""Small wheels and packed environments, made without a network."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
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


def packed_environment(place: Path, **versions: str) -> Path:
    """Pack a virtual environment with these modules, as venv-pack does; return the archive."""
    made = place / "made"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", made], check=True)
    [packages] = made.glob("lib/*/site-packages")
    for name, version in versions.items():
        (packages / name).mkdir()
        (packages / name / "__init__.py").write_text(f"VERSION = {version!r}\n")
    with tarfile.open(place / "env.tar.gz", "w:gz") as archive:
        for one in sorted(made.iterdir()):
            archive.add(one, one.name)
    shutil.rmtree(made)
    return place / "env.tar.gz"
