"""An application of the command line as uploads and a request: for a cluster that runs already.

What is packed depends on the files' names and content only, so that the same application is the
same uploads, and a repeated submission the same request.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from understudy.cli.launch.entry_points import EntryPoint, entry_point
from understudy.cli.launch.spec import ApplicationSpec
from understudy.config import Configuration, options
from understudy.config.configuration import quoted
from understudy.errors import UsageError
from understudy.model import MODULE
from understudy.process import archives, notebooks, requirements
from understudy.process.code import SourceFile
from understudy.process.given_files import FILE_SETTINGS

CODE_NAME = "code.zip"

_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time of all members: the earliest that a zip file can state."""

_MODE = 0o644 << 16


@dataclass(frozen=True)
class Packed:
    """Files to upload, and the request that names them by their place here."""

    main: Path
    entry: str
    """What runs in ``main``; empty for a script that is uploaded as it is."""
    conf: dict[str, str]
    """Spark's settings without the files that are uploaded."""
    py_files: tuple[Path, ...] = ()
    files: tuple[Path, ...] = ()
    archives: tuple[tuple[Path, str], ...] = ()
    """Each with its alias, which is empty or begins with ``#``."""

    @property
    def uploads(self) -> tuple[Path, ...]:
        """Return all files, each once."""
        packed = (path for path, _ in self.archives)
        return tuple(dict.fromkeys((self.main, *self.py_files, *self.files, *packed)))


def packed(spec: ApplicationSpec, place: Path) -> Packed:
    """Pack an application into files of a directory. Raises `UsageError` for what has no place."""
    entry = entry_point(spec.app, spec.cwd, is_module=spec.is_module)
    if not entry.files:
        raise UsageError(
            f"{entry.target} is not beside you but installed, or a part of Python: a session runs "
            "what is uploaded; write a script that calls it, or use `--target local`"
        )
    main, named = _main(entry, place)
    given = _Given(dict(spec.conf))
    for flag, setting in FILE_SETTINGS.items():
        given.take(flag, setting)
    py_files = tuple(_uploadable("py-files", Path(one)) for one in spec.py_files)
    return Packed(main, named, given.conf, py_files, tuple(given.files), tuple(given.archives))


def request_of(
    spec: ApplicationSpec, found: Packed, ids: dict[Path, str], configuration: Configuration
) -> dict[str, Any]:
    """Return the body that runs an application whose uploads have these ids.

    Of the configuration, an application brings what concerns it alone, and Spark's settings.
    """
    settings = {
        **{
            key: text
            for key, text in configuration.settings.items()
            if key in options.OF_APPLICATIONS
        },
        **configuration.passed_on("spark."),
        **found.conf,
    }
    for file in requirements.given(spec.requirements, ""):
        settings[options.PYTHON_REQUIREMENTS.key] = file.read().decode()
    body = {
        "entryClass": found.entry,
        "programArgsList": list(spec.args),
        "flinkConfiguration": settings,
        "pyFiles": [ids[one] for one in found.py_files],
        "files": [ids[one] for one in found.files],
        "archives": [ids[path] + alias for path, alias in found.archives],
        "runsAs": spec.runs_as.value,
        "cwd": spec.cwd,
    }
    return {key: value for key, value in body.items() if value}


def _main(entry: EntryPoint, place: Path) -> tuple[Path, str]:
    """Return the file with the code, and what of it runs."""
    script = entry.script and entry.begins
    if script and len(entry.files) == 1 and archives.UPLOAD_NAME.fullmatch(_name(script)):
        path = place / _name(script)
        path.write_bytes(script.read())
        return path, ""
    path = place / CODE_NAME
    with zipfile.ZipFile(path, "w") as file:
        for one in sorted(entry.files, key=_name):
            info = zipfile.ZipInfo(_name(one), _EPOCH)
            info.external_attr = _MODE
            file.writestr(info, one.read(), zipfile.ZIP_DEFLATED)
    return path, _name(script) if script else entry.target.removeprefix(MODULE).strip()


def _name(file: SourceFile) -> str:
    """Return a file's path in the code; a notebook is stored as the script that it contains."""
    name = file.name.partition("/")[2]
    return name.removesuffix(notebooks.SUFFIX) + ".py" if name.endswith(notebooks.SUFFIX) else name


@dataclass
class _Given:
    """Spark's settings, from which the files of this host are taken out."""

    conf: dict[str, str]
    files: list[Path] = field(default_factory=list)
    archives: list[tuple[Path, str]] = field(default_factory=list)

    def take(self, flag: str, setting: str) -> None:
        """Take the files out of one setting; what is a URL stays."""
        kept = []
        for item in self.conf.pop(setting, "").split(","):
            path, separator, alias = item.partition("#")
            if not path.startswith("/"):
                kept += [item] if item else []
            elif flag == "archives":
                self.archives.append((_uploadable(flag, Path(path)), separator + alias))
            elif flag == "files":
                self.files.append(_uploadable(flag, Path(path)))
            else:
                raise UsageError(f"--{flag} {path}: {_elsewhere(path)}")
        if kept:
            self.conf[setting] = ",".join(kept)


def _uploadable(flag: str, path: Path) -> Path:
    """Return a file that can be uploaded. Raises `UsageError`."""
    try:
        archives.check_upload_name(path.name)
    except UsageError:
        endings = ", ".join(archives.UPLOADS)
        raise UsageError(
            f"--{flag} {path}: uploaded are files with the endings {endings} and plain names: "
            f"rename it, or {_elsewhere(str(path))}"
        ) from None
    if not path.is_file():
        raise UsageError(f"--{flag} {quoted(str(path))}: no such file")
    return path


def _elsewhere(path: str) -> str:
    return (
        f"put it where each host of the session finds it, and give file://{path}, or give the URL "
        "of an object store"
    )
