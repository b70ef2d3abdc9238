"""The application's code: wheels are laid out unpacked, and nothing outside its place."""

from __future__ import annotations

import io
import itertools
import os
import shutil
import subprocess
import sys
import tarfile
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from understudy.errors import UsageError
from understudy.ha.blobs import BlobStore
from understudy.ha.format import digest
from understudy.ha.storage import LocalStorage, open_storage
from understudy.model import Artifact, UploadedArtifact
from understudy.process import archives, code
from understudy.process.disk import Disk

PURE = "gauge-1.0-py3-none-any.whl"
LOOK = (
    "import gauge, late; from importlib.metadata import version; "
    "print(gauge.UNIT, late.WORD, version('gauge'))"
)
FILES = {
    "gauge/__init__.py": (
        "from pathlib import Path\nUNIT = Path(__file__).with_name('unit.txt').read_text()\n"
    ),
    "gauge/unit.txt": "knots",
    "gauge-1.0.data/purelib/late.py": "WORD = 'late'\n",
    "gauge-1.0.data/scripts/gauge": "#!python\n",
    "gauge-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: gauge\nVersion: 1.0\n",
    "gauge-1.0.dist-info/RECORD": "",
}


def archive(place: Path, name: str, files: Mapping[str, str]) -> Path:
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w") as file:
        for path, text in files.items():
            file.writestr(path, text)
    (place / name).write_bytes(body.getvalue())
    return place / name


def laid_out(place: Path, given: Path) -> tuple[str, ...]:
    """Store a wheel, lay it out as another host does, and return what goes on Python's path."""
    storage = LocalStorage(place / "ha")
    artifacts = code.store(BlobStore(storage, "c", "d"), code.py_files([str(given)]))
    return code.python_path(str(code.lay_out(storage, "c", "d", artifacts)), artifacts)


def test_a_pure_wheel_is_laid_out_with_its_data_files_and_what_tells_its_version(
    tmp_path: Path,
) -> None:
    path = laid_out(tmp_path, archive(tmp_path, PURE, FILES))
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {list(path)!r}; {LOOK}"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert "knots late 1.0\n" == done.stdout


def test_uploads_are_laid_out_from_where_they_were_uploaded_to(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "ha")
    wheel = archive(tmp_path, PURE, FILES).read_bytes()
    known = []
    for number, (name, body) in enumerate({"etl.py": b"x = 1", PURE: wheel}.items()):
        path = f"c/artifacts/{number}"
        storage.publish(path, body)
        known.append(
            UploadedArtifact(
                artifact_id=name, name=name, digest=digest(body), size=len(body), path=path,
                uploaded_at=0, used_at=0,
            )
        )  # fmt: skip
    artifacts = (code.uploaded(known[0], "app"), code.uploaded(known[1], "files"))
    target = code.lay_out(storage, "c", "d", artifacts)

    assert b"x = 1" == (target / "app" / "etl.py").read_bytes()
    assert "knots" == (target / "files" / PURE / "gauge" / "unit.txt").read_text()
    assert (f"{target}/files/{PURE}",) == code.python_path(str(target), artifacts)[2:]
    assert ["artifacts", "code"] == storage.names("c"), "nothing is copied for the application"


@pytest.mark.parametrize("name", ["code.zip", "code.tar.gz"])
def test_an_archive_of_code_is_unpacked_as_the_directory_of_the_script(
    tmp_path: Path, name: str
) -> None:
    files, packed = {"etl.py": b"x = 1", "steps/a.sql": b"select 1"}, io.BytesIO()
    if name.endswith(".zip"):
        with zipfile.ZipFile(packed, "w") as archive_:
            for path, body in files.items():
                archive_.writestr(path, body)
    else:
        with tarfile.open(fileobj=packed, mode="w:gz") as tar:
            for path, body in files.items():
                info = tarfile.TarInfo(path)
                info.size = len(body)
                tar.addfile(info, io.BytesIO(body))
    body, storage = packed.getvalue(), LocalStorage(tmp_path / "ha")
    storage.publish("c/artifacts/1", body)
    one = UploadedArtifact(
        artifact_id=name, name=name, digest=digest(body), size=len(body), path="c/artifacts/1",
        uploaded_at=0, used_at=0,
    )  # fmt: skip
    target = code.lay_out(storage, "c", "d", (code.uploaded(one, "app"),))

    assert b"x = 1" == (target / "app" / "etl.py").read_bytes()
    assert b"select 1" == (target / "app" / "steps" / "a.sql").read_bytes()


@pytest.mark.parametrize("paths", [("a.py", "a.py"), ("a", "a/b.py"), ("./a.py", "a.py")])
def test_an_archive_of_code_whose_members_share_a_place_is_refused(paths: tuple[str, str]) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive_:
        for path in paths:
            with warnings.catch_warnings(action="ignore"):
                archive_.writestr(path, b"")

    with pytest.raises(UsageError, match="two members of it would lie in one place"):
        archives.code_in("code.zip", packed.getvalue())


def test_an_archive_of_code_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "CODE_MEMBERS_MAX", 1)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive_:
        archive_.writestr("a.py", b"")
        archive_.writestr("b.py", b"")

    with pytest.raises(UsageError, match=r"code.zip: it has more than 1 members"):
        archives.code_in("code.zip", packed.getvalue())


def test_a_layout_has_the_same_name_wherever_its_content_is_stored() -> None:
    own = Artifact(name="app/etl.py", digest="sha256:1", size=1)

    assert code.code_digest((own,)) == code.code_digest((replace(own, path="c/artifacts/1"),))
    assert code.code_digest((own,)) != code.code_digest((replace(own, digest="sha256:2"),))


def test_a_wheel_leaves_its_scripts_behind(tmp_path: Path) -> None:
    path = laid_out(tmp_path, archive(tmp_path, PURE, FILES))
    names = sorted(entry.name for entry in Path(path[-1]).iterdir())

    assert ["gauge", "gauge-1.0.dist-info", "late.py"] == names


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gauge-1.0-cp311-cp311-win_amd64.whl", "was built for cp311-cp311-win_amd64"),
        ("gauge-1.0-py2-none-any.whl", "was built for py2-none-any"),
        ("gauge.whl", "is not a wheel's name"),
    ],
)
def test_a_wheel_that_cannot_be_used_here_is_refused(tmp_path: Path, name: str, said: str) -> None:
    given = archive(tmp_path, name, FILES)

    with pytest.raises(UsageError, match=said):
        code.py_files([str(given)])


def test_a_wheel_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / PURE).write_bytes(b"not a zip")

    with pytest.raises(UsageError, match="is no archive that can be read"):
        code.py_files([str(tmp_path / PURE)])


@pytest.mark.parametrize("path", ["../out.py", "/tmp/out.py", "gauge/../../out.py"])
def test_a_wheel_that_reaches_out_of_its_place_is_refused(tmp_path: Path, path: str) -> None:
    given = archive(tmp_path, PURE, {**FILES, path: "OUT = 1\n"})

    with pytest.raises(UsageError, match="would be unpacked outside its place"):
        code.py_files([str(given)])


def test_what_was_laid_out_beneath_the_script_is_not_its_code(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("1")
    laid_out(tmp_path, archive(tmp_path, PURE, FILES))

    assert ["app/app.py"] == [file.name for file in code.beside(tmp_path / "app.py")]


def stored(place: Path) -> tuple[LocalStorage, tuple[Artifact, ...]]:
    """Store a script with a module beside it."""
    storage = LocalStorage(place / "ha")
    (place / "app.py").write_text("import more")
    (place / "more.py").write_text("WORD = 'more'")
    files = code.beside(place / "app.py")
    return storage, code.store(BlobStore(storage, "c", "d"), files)


def test_what_is_no_file_is_no_code(tmp_path: Path) -> None:
    """Reading a pipe would never end, and an editor locks a file with a link to nothing."""
    for name in ("app.py", "package/__init__.py", "package/table.csv"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    (tmp_path / "linked.py").symlink_to(tmp_path / "app.py")
    for place in (tmp_path, tmp_path / "package"):
        os.mkfifo(place / "pipe.py")
        (place / ".#app.py").symlink_to("somebody@this-host.1234:5678")
        (place / "zeros.py").symlink_to("/dev/zero")
    found = {file.name for file in code.beside(tmp_path / "app.py")}

    assert {
        "app/app.py",
        "app/linked.py",
        "app/package/__init__.py",
        "app/package/table.csv",
    } == found


@pytest.mark.parametrize("damage", ["emptied", "removed", "unmarked", "a draft's"])
def test_a_layout_that_is_not_whole_is_laid_out_anew(tmp_path: Path, damage: str) -> None:
    """As a crash of the host leaves it, or who clears temporary directories."""
    storage, artifacts = stored(tmp_path)
    target = code.lay_out(storage, "c", "d", artifacts)
    if damage == "emptied":
        (target / "app/more.py").write_text("")
    elif damage == "removed":
        shutil.rmtree(target / "app")
    elif damage == "unmarked":
        (target / code.LAYOUT_MARK).unlink()
    else:
        (target / code.LAYOUT_MARK).write_text("")
    again = code.lay_out(storage, "c", "d", artifacts)

    assert target == again
    assert "WORD = 'more'" == (target / "app/more.py").read_text()
    assert [target.name] == [path.name for path in target.parent.iterdir()]


def test_a_layout_that_is_whole_is_left_as_it_is(tmp_path: Path) -> None:
    storage, artifacts = stored(tmp_path)
    target = code.lay_out(storage, "c", "d", artifacts)
    (target / "app/__pycache__").mkdir()
    before = target.stat().st_ino
    code.lay_out(storage, "c", "d", artifacts)

    assert before == target.stat().st_ino


def test_all_of_a_layout_is_durable_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    sync, rename = Disk.sync, Path.rename

    def synced(self: Disk, path: Path) -> None:
        done.append(path.name)
        sync(self, path)

    def renamed(path: Path, target: Path) -> Path:
        done.append("rename")
        return rename(path, target)

    storage, artifacts = stored(tmp_path)
    monkeypatch.setattr(Disk, "sync", synced)
    monkeypatch.setattr(Path, "rename", renamed)
    target = code.lay_out(storage, "c", "d", artifacts)

    before, after = done[: done.index("rename")], done[done.index("rename") + 1 :]
    assert {"app", "app.py", "more.py", code.LAYOUT_MARK, "files"} < set(before)
    assert [target.parent.name] == after


@pytest.mark.parametrize("after", ["a part", "all files", "everything"])
def test_a_draft_that_another_removes_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    """Another JobManager of this host ends its cleanup after its term."""
    storage, artifacts = stored(tmp_path)
    base = code.layout_base(storage, "c")
    owner, name, at = {
        "a part": (BlobStore, "get", 3),
        "all files": (Disk, "sync", 1),
        "everything": (Path, "rename", 1),
    }[after]
    unhindered, calls = getattr(owner, name), itertools.count(1)

    def hindered(*arguments: object) -> object:
        if next(calls) == at:
            code.remove_layouts(base)
        return unhindered(*arguments)

    monkeypatch.setattr(owner, name, hindered)
    target = code.lay_out(storage, "c", "d", artifacts)

    assert next(calls) > at
    assert {"app.py", "more.py"} == {path.name for path in (target / "app").iterdir()}
    assert [target.name] == [path.name for path in target.parent.iterdir()]


def test_clusters_of_one_id_lay_out_apart_unless_their_storage_is_one() -> None:
    here, there = (open_storage(f"memory://{name}") for name in ("one", "other"))

    assert code.layout_base(here, "c") != code.layout_base(there, "c")
    assert code.layout_base(here, "c") == code.layout_base(open_storage("memory://one"), "c")


def test_what_changed_between_two_deployments_is_named(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("1")
    (tmp_path / "gone.py").write_text("1")
    (tmp_path / "same.py").write_text("1")
    stored = code.store(
        BlobStore(LocalStorage(tmp_path / "ha"), "c", "d"), code.beside(tmp_path / "app.py")
    )
    before = code.changed(stored, code.beside(tmp_path / "app.py"))
    (tmp_path / "app.py").write_text("2")
    (tmp_path / "gone.py").rename(tmp_path / "new.py")
    after = code.changed(stored, code.beside(tmp_path / "app.py"))

    assert ([], ["app.py", "gone.py", "new.py"]) == (before, after)
