"""What is packed for executors: all that lies on the path, once, wherever it lies."""

from __future__ import annotations

import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from understudy.spark.shipping import pack, ship_code

BESIDE = {
    "app/app.py": "1",
    "app/parts/__init__.py": "",
    "app/parts/unit ü.txt": "knots",
    "app/parts/__pycache__/parts.pyc": "x",
    "files/brought.py": "2",
    "files/gauge.whl/gauge.py": "3",
    "files/library.zip": "4",
}
EXPECTED = [
    "0/app/app.py",
    "0/app/parts/__init__.py",
    "0/app/parts/unit ü.txt",
    "1/files/brought.py",
    "2/gauge.whl/gauge.py",
    "3/library.zip",
]


def laid_out(place: Path) -> list[str]:
    for name, text in BESIDE.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    entries = ("app", "files", "files/gauge.whl", "files/library.zip", "nowhere")
    return [*(str(place / entry) for entry in entries), ""]


def names(archive: Path | None) -> list[str]:
    assert archive is not None
    with zipfile.ZipFile(archive) as packed:
        return packed.namelist()


def test_each_file_is_packed_once_in_the_place_of_its_entry(tmp_path: Path) -> None:
    path = laid_out(tmp_path / "code")

    assert EXPECTED == names(pack(path, tmp_path))


def test_equal_contents_make_one_archive_and_others_another(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    first = pack(laid_out(tmp_path / "code"), tmp_path)
    again = pack(laid_out(tmp_path / "code"), tmp_path)
    elsewhere = pack(laid_out(tmp_path / "other place"), tmp_path / "scratch")
    (tmp_path / "code/app/app.py").write_text("changed")
    changed = pack(laid_out(tmp_path / "more") and [str(tmp_path / "code/app")], tmp_path)

    assert first is not None
    assert elsewhere is not None
    assert first == again != changed
    assert (first.name, first.read_bytes()) == (elsewhere.name, elsewhere.read_bytes())
    assert [] == list(tmp_path.glob("*.draft"))


def test_where_nothing_lies_nothing_is_packed(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    assert pack(["", str(tmp_path / "empty"), str(tmp_path / "nowhere")], tmp_path) is None


class _Context:
    def __init__(self, master: str) -> None:
        self.master = master
        self.archives: list[str] = []
        self._python_includes = ["theirs.zip"]
        self.addArchive = self.archives.append


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "local-cluster[1,1,1024]"])
def test_executors_find_what_is_first_on_the_path_first(master: str, tmp_path: Path) -> None:
    scratch = tmp_path / "a place, with #"
    scratch.mkdir()
    context: Any = _Context(master)
    ship_code(context, laid_out(tmp_path / "code"), scratch)
    [archive] = scratch.glob("*.zip")
    # A worker puts each before those that it has.
    found = [*reversed(context._python_includes)]

    assert [f"{archive.as_uri()}#{archive.stem}"] == context.archives
    assert "#" not in archive.as_uri()
    assert [
        *(f"{archive.stem}/{place}" for place in ("0/app", "1/files", "2/gauge.whl")),
        *(f"{archive.stem}/{place}" for place in ("3/library.zip", "4/nowhere")),
        "theirs.zip",
    ] == found


def test_where_the_driver_computes_nothing_is_shipped(tmp_path: Path) -> None:
    context: Any = SimpleNamespace(master="local[2]")
    ship_code(context, laid_out(tmp_path / "code"), tmp_path)

    assert [] == list(tmp_path.glob("*.zip"))
