"""The application's code: gathered beside the script, stored as blobs, laid out to be imported.

Laid out, ``app/`` holds the script and the modules beside it, ``files/`` what ``--py-files`` gave;
a wheel becomes a directory of its name, so that packages find their data files. What Spark is given
(`runtime.given_files`) lies beside those two. A layout is named by the digest of its artifact list,
is published whole, and is shared by all processes of a host.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import msgspec

from understudy.errors import UsageError
from understudy.ha import layout, own_directory, removal
from understudy.ha.blobs import BlobStore
from understudy.ha.format import digest
from understudy.ha.storage import BlockingStorage, LocalStorage
from understudy.model import Artifact
from understudy.process.disk import Disk

CODE_BYTES_MAX = 10 << 20
CODE_FILES_MAX = 1_000
"""What is stored with a script. More is not code that lies beside it, but data, or a home."""

WHEEL = ".whl"

LAYOUT_MARK = "understudy.layout"
"""Lies in each layout: storage may be beneath the script's directory, and is no code of its own. It
holds the size of each file, as JSON."""

WAY_OUT = "set TMPDIR to a directory of your own: code would be executed from there"

PLACED_MAX = 10
"""So often another process may find the same damage, and place its layout in between."""

_SKIPPED = {"__pycache__", "node_modules", "site-packages", "spark-warehouse", "metastore_db"}


@dataclass(frozen=True)
class SourceFile:
    """A file that belongs to the application: where it is, and its place in the layout."""

    path: Path
    name: str
    on_path: bool = False


def beside(script: Path) -> list[SourceFile]:
    """Return the script and the modules that lie beside it, or raise `UsageError` past limits."""
    found = [SourceFile(script, f"app/{script.name}")]
    size = script.stat().st_size
    root = script.parent
    for path in _modules(root):
        if path == script:
            continue
        if not _is_text(path.name):
            raise UsageError(
                f"{str(path)!r} lies beside {script.name}, and its name is no UTF-8: rename it"
            )
        found.append(SourceFile(path, f"app/{path.relative_to(root).as_posix()}"))
        size += path.stat().st_size
        if len(found) > CODE_FILES_MAX or size > CODE_BYTES_MAX:
            raise UsageError(
                f"{root} holds more than {CODE_FILES_MAX} files or {CODE_BYTES_MAX >> 20} MB of "
                f"Python beside {script.name}, all of which would be stored with it: put the "
                "script and its modules into a directory of their own"
            )
    return found


def _archives() -> ModuleType:
    """Return the module that knows wheels, which few applications bring."""
    return importlib.import_module("understudy.process.archives")


def py_files(paths: Iterable[str]) -> list[SourceFile]:
    """Return what ``--py-files`` names: .py files, .zip archives, eggs and wheels."""
    found = []
    for text in paths:
        path = Path(text)
        if path.suffix not in {".py", ".zip", ".egg", WHEEL}:
            raise UsageError(f"--py-files {text}: expected .py, .zip, .egg or .whl")
        if not path.is_file():
            raise UsageError(f"--py-files {text}: no such file")
        if path.suffix == WHEEL:
            _archives().check_wheel(path)
        found.append(SourceFile(path, f"files/{path.name}", on_path=path.suffix != ".py"))
    return found


def changed(stored: Iterable[Artifact], files: Iterable[SourceFile]) -> list[str]:
    """Return the names of files that differ from those stored, came or went; sorted."""
    before = {item.name: item.digest for item in stored}
    now = {file.name: digest(file.path.read_bytes()) for file in files}
    names = (name for name in {*before, *now} if before.get(name) != now.get(name))
    return sorted({name.partition("/")[2] for name in names})


def store(blobs: BlobStore, files: Iterable[SourceFile]) -> tuple[Artifact, ...]:
    """Put files into the BlobStore; return how to find them again."""
    artifacts = []
    for file in files:
        body = file.path.read_bytes()
        artifacts.append(
            Artifact(name=file.name, digest=blobs.put(body), size=len(body), on_path=file.on_path)
        )
    return tuple(artifacts)


def code_digest(artifacts: tuple[Artifact, ...]) -> str:
    """Return the name of a layout."""
    encoded = msgspec.json.encode(artifacts, order="sorted")
    return hashlib.sha256(encoded).hexdigest()[:24]


def python_path(directory: str, artifacts: tuple[Artifact, ...]) -> tuple[str, ...]:
    """Return what must be put on Python's path, in order."""
    packed = tuple(f"{directory}/{item.name}" for item in artifacts if item.on_path)
    return (f"{directory}/app", f"{directory}/files", *packed)


def lay_out(
    storage: BlockingStorage, cluster: str, directory: str, artifacts: tuple[Artifact, ...]
) -> Path:
    """Lay the artifacts out on this host, unless somebody has; return the directory."""
    target = layout_base(storage, cluster) / code_digest(artifacts)
    if not isinstance(storage, LocalStorage):
        own_directory.check(target.parent, WAY_OUT)
    if _is_whole(target):
        return target
    blobs = BlobStore(storage, cluster, directory)
    for artifact in artifacts[:1]:
        blobs.get(artifact)  # A storage that has vanished is not made anew.
    own_directory.make(target.parent, way_out=WAY_OUT)
    draft = _draft_in(target.parent)
    try:
        for artifact in artifacts:
            path = draft / artifact.name
            path.parent.mkdir(parents=True, exist_ok=True)
            if artifact.on_path and path.suffix == WHEEL:
                _archives().unpack_wheel(blobs.get(artifact), path)
            else:
                path.write_bytes(blobs.get(artifact))
        (draft / "app").mkdir(parents=True, exist_ok=True)
        (draft / "files").mkdir(exist_ok=True)
        _seal(draft)
        _place(draft, target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return target


def _seal(draft: Path) -> None:
    """Note what a layout holds, and make it durable: its name will be before its bytes are."""
    found, mark, disk = list(draft.rglob("*")), draft / LAYOUT_MARK, Disk()
    files = [path for path in found if path.is_file()]
    sizes = {path.relative_to(draft).as_posix(): path.stat().st_size for path in files}
    mark.write_bytes(msgspec.json.encode(sizes))
    for path in (*found, mark, draft):
        disk.sync(path)


def _is_whole(target: Path) -> bool:
    """Say whether a layout is there as it was sealed.

    A crash of the host, or whoever clears temporary directories, may have left it without files:
    then `main` would be empty, and its run be over at once.
    """
    try:
        sizes = msgspec.json.decode((target / LAYOUT_MARK).read_bytes(), type=dict[str, int])
        return all((target / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, msgspec.DecodeError):
        return False


def _place(draft: Path, target: Path) -> None:
    """Give a layout its name, in place of one that is not whole; leave a whole one there."""
    for _ in range(PLACED_MAX):
        try:
            draft.rename(target)
        except OSError:
            if _is_whole(target):
                return
            if not target.is_dir():
                raise
        else:
            Disk().sync(target.parent)
            return
        shutil.rmtree(_put_aside(target), ignore_errors=True)
    raise OSError(errno.EBUSY, "the code cannot be laid out: others do so", str(target))


def _put_aside(laid_out: Path) -> Path:
    """Take a layout out of its place, so that what a crash leaves of it is never taken for one."""
    draft = _draft_in(laid_out.parent)
    with contextlib.suppress(FileNotFoundError):  # Another process does so just now.
        laid_out.rename(draft)
    return draft


def _draft_in(base: Path) -> Path:
    return base / f".draft-{uuid.uuid4().hex}"


def layout_base(storage: BlockingStorage, cluster: str) -> Path:
    """Return where layouts of a cluster go: into local storage, or the temporary directory."""
    if isinstance(storage, LocalStorage):
        return storage.root / layout.code_directory(cluster, "x").rpartition("/")[0]
    # In one directory that a cleanup can remove, whose name others may know.
    marked = layout.marked(cluster, storage.url)
    return Path(tempfile.gettempdir()) / f"understudy-{os.getuid()}-code-{marked}"


def remove_layouts(base: Path) -> None:
    """Remove all layouts of a cluster on this host; absent is fine."""
    removal.refuse_links(base.parent, base.name)
    if not base.exists():
        return
    for laid_out in base.iterdir():
        _put_aside(laid_out)
    removal.remove_tree(base.parent, base.name)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _modules(root: Path) -> Iterator[Path]:
    for directory, names, files in os.walk(root):
        here = Path(directory)
        names[:] = sorted(
            name
            for name in names
            if name not in _SKIPPED
            and not name.startswith(".")
            and not (here / name / "pyvenv.cfg").exists()
            and not (here / name / LAYOUT_MARK).exists()
        )
        package = (here / "__init__.py").exists() and here != root
        for name in sorted(files):
            if name.endswith(".py") or (package and not name.endswith((".pyc", ".pyo"))):
                yield here / name
