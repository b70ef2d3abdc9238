"""Turning the command line into a submission: script or function, with its files."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from understudy.cli.launch.spec import ApplicationSpec, RunsAs
from understudy.config import Configuration, options
from understudy.config.configuration import learn_secrets, quoted
from understudy.core.converted import imports_understudy
from understudy.core.matching import NAME_BYTES_MAX
from understudy.errors import UsageError
from understudy.jobmanager.submission import Submission
from understudy.process import code, given_files
from understudy.process.code import SourceFile

if TYPE_CHECKING:
    from understudy.cli.launch.spark_submit import SparkSubmit


def application_spec(
    configuration: Configuration,
    app: str,
    args: Iterable[str],
    said: SparkSubmit,
    runs_as: RunsAs | None = None,
) -> ApplicationSpec:
    """Return the complete application from the command line. Raises `UsageError`.

    ``runs_as`` overrules what its sources tell.
    """
    if _is_function(app):
        target, title = app, app.rpartition(":")[2]
    else:
        path = Path(app)
        if not path.is_file():
            raise UsageError(f"{app}: no such script (or give module:function)")
        if path.suffix in {".jar", ".r", ".R"}:
            raise UsageError(f"{app}: only Python applications can be run")
        _check_script(path)
        target, title = str(path.absolute()), path.stem
    settings = dict(said.conf)
    title = _checked_title(said.name or settings.get("spark.app.name") or title)
    settings["spark.app.name"] = title
    learn_secrets(settings, configuration.get(options.REDACTED_KEYS))
    spec = ApplicationSpec(target, tuple(args), str(Path.cwd()), title, said.py_files, settings)
    files = source_files(spec)  # Refuse now files that could not be stored later.
    return replace(spec, runs_as=runs_as or _runs_as(spec, files), overruled=runs_as is not None)


def unconverted(spec: ApplicationSpec) -> str:
    """Return what to tell of an application that was not converted; empty for any other."""
    if spec.runs_as is RunsAs.MAIN or spec.overruled:
        return ""
    return (
        f"understudy: {target_of(spec)} does not import understudy, so all of it runs as one job: "
        "the loss of a JobManager does not touch it, the loss of its driver starts it again from "
        "the top (--as main changes that; docs/convert.md)"
    )


def _runs_as(spec: ApplicationSpec, files: Iterable[SourceFile]) -> RunsAs:
    """Return how an application runs, by whether its stored sources import Understudy."""
    sources = code.sources(files)
    if _is_function(spec.app):
        entry = spec.app.partition(":")[0]
    else:
        entry = "__main__"
        sources[entry] = Path(spec.app).read_bytes()
    converted = entry not in sources or imports_understudy(entry, sources)
    return RunsAs.MAIN if converted else RunsAs.JOB


def _check_script(path: Path) -> None:
    """Raise `UsageError` for a script that Python cannot read or compile; nothing is executed."""
    try:
        with warnings.catch_warnings(action="ignore"):  # They are shown when the script runs.
            compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        where = f", line {error.lineno}" if error.lineno else ""
        raise UsageError(f"{path}{where}: {error.msg}: correct the script") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"{path}: Python cannot compile it: {error}") from error
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error


def _checked_title(title: str) -> str:
    """Return a valid application name: it appears in tables, logs and pages."""
    if not title.isprintable() or not title.strip() or len(title.encode()) > NAME_BYTES_MAX:
        raise UsageError(
            f"the application's name is {quoted(title)}: use up to {NAME_BYTES_MAX:,} bytes of "
            "printable text, given with --name"
        )
    return title


def submission_of(spec: ApplicationSpec, configuration: Configuration) -> Submission:
    """Return the submission to store."""
    is_function = _is_function(spec.app)
    return Submission(
        name=spec.name,
        target=target_of(spec),
        script="" if is_function else spec.app,
        args=spec.args,
        cwd=spec.cwd,
        files=tuple(source_files(spec)),
        conf={**configuration.passed_on("spark."), **spec.conf},
        configuration=dict(configuration.redacted()),
        first_job_id=configuration.find(options.FIRST_JOB_ID) or "",
        savepoints=spec.savepoints,
        as_job=spec.runs_as is RunsAs.JOB,
    )


def target_of(spec: ApplicationSpec) -> str:
    """Return the target: the script's file name, or ``module:function``."""
    return spec.app if _is_function(spec.app) else Path(spec.app).name


def source_files(spec: ApplicationSpec) -> list[SourceFile]:
    """Return the application's files. Raises `UsageError`."""
    given = [*code.py_files(spec.py_files), *given_files.gathered(spec.conf)]
    if not _is_function(spec.app):
        return [*code.beside(Path(spec.app)), *given]
    module = spec.app.partition(":")[0]
    try:
        found = importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        found = None
    if found is None or not found.origin:
        local = Path(spec.cwd) / f"{module.partition('.')[0]}.py"
        if not local.is_file():
            raise UsageError(f"{spec.app}: no module {module!r} here or on Python's path")
        return [*code.beside(local), *given]
    if not found.has_location:
        return given  # Built into Python.
    origin = Path(found.origin)
    if "site-packages" in origin.parts or "dist-packages" in origin.parts:
        return given  # Installed: the same for every process.
    return [*code.beside(origin), *given]


def _is_function(app: str) -> bool:
    module, _, name = app.partition(":")
    return bool(name) and not Path(app).exists() and module.replace(".", "_").isidentifier()
