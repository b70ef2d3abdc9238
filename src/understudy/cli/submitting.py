"""From what a person types to what is submitted: scripts, functions, spark-submit's flags."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping
from pathlib import Path

from understudy.cli.spec import ApplicationSpec
from understudy.config import Configuration, options
from understudy.errors import UsageError
from understudy.runtime import code
from understudy.runtime.code import SourceFile
from understudy.runtime.submission import Submission

FLAG_SETTINGS = {
    "master": "spark.master",
    "driver_memory": "spark.driver.memory",
    "driver_cores": "spark.driver.cores",
    "driver_java_options": "spark.driver.extraJavaOptions",
    "driver_class_path": "spark.driver.extraClassPath",
    "driver_library_path": "spark.driver.extraLibraryPath",
    "executor_memory": "spark.executor.memory",
    "executor_cores": "spark.executor.cores",
    "num_executors": "spark.executor.instances",
    "total_executor_cores": "spark.cores.max",
    "packages": "spark.jars.packages",
    "exclude_packages": "spark.jars.excludes",
    "repositories": "spark.jars.repositories",
    "queue": "spark.yarn.queue",
}
"""spark-submit's flags that are settings."""

FILE_SETTINGS = {"files": "spark.files", "jars": "spark.jars"}
"""... and those that are settings whose value is a list of files."""


def spark_conf(
    flags: Mapping[str, str | None], conf: Iterable[str], properties_file: str | None
) -> dict[str, str]:
    """Return Spark's settings, with spark-submit's precedence: file, then flags, then --conf."""
    found: dict[str, str] = {}
    if properties_file:
        found.update(_read_properties(properties_file))
    for flag, value in flags.items():
        if value is None:
            continue
        if flag in FLAG_SETTINGS:
            found[FLAG_SETTINGS[flag]] = value
        elif flag in FILE_SETTINGS:
            found[FILE_SETTINGS[flag]] = ",".join(_absolute(flag, value))
    for item in conf:
        key, separator, value = item.partition("=")
        if not separator or not key.startswith("spark."):
            raise UsageError(f"--conf {item!r}: expected spark.key=value")
        found[key] = value
    return found


def application_spec(
    app: str,
    args: Iterable[str],
    name: str | None,
    py_files: str | None,
    conf: Mapping[str, str],
) -> ApplicationSpec:
    """Check what was typed, and return it complete; raises `UsageError`."""
    paths = tuple(str(Path(path).absolute()) for path in (py_files or "").split(",") if path)
    if _is_function(app):
        target, title = app, app.rpartition(":")[2]
    else:
        path = Path(app)
        if not path.is_file():
            raise UsageError(f"{app}: no such script (or give module:function)")
        if path.suffix in {".jar", ".r", ".R"}:
            raise UsageError(f"{app}: only Python applications can be run")
        target, title = str(path.absolute()), path.stem
    settings = dict(conf)
    title = name or settings.get("spark.app.name") or title
    settings["spark.app.name"] = title
    spec = ApplicationSpec(target, tuple(args), str(Path.cwd()), title, paths, settings)
    source_files(spec)  # Refuse now what could not be stored later.
    return spec


def submission_of(spec: ApplicationSpec, configuration: Configuration) -> Submission:
    """Gather what is to be stored."""
    is_function = _is_function(spec.app)
    return Submission(
        name=spec.name,
        target=spec.app if is_function else Path(spec.app).name,
        script="" if is_function else spec.app,
        args=spec.args,
        cwd=spec.cwd,
        files=tuple(source_files(spec)),
        conf={**configuration.passed_on("spark."), **spec.conf},
        configuration=dict(configuration.redacted()),
        first_job_id=_first_job_id(configuration),
    )


def source_files(spec: ApplicationSpec) -> list[SourceFile]:
    """Return the application's files; raises `UsageError`."""
    given = code.py_files(spec.py_files)
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
    origin = Path(found.origin)
    if "site-packages" in origin.parts or "dist-packages" in origin.parts:
        return given  # Installed: the same for every process.
    return [*code.beside(origin), *given]


def _is_function(app: str) -> bool:
    module, _, name = app.partition(":")
    return bool(name) and not Path(app).exists() and module.replace(".", "_").isidentifier()


def _first_job_id(configuration: Configuration) -> str:
    text = (configuration.find(options.FIRST_JOB_ID) or "").lower()
    if text and (len(text) != 32 or any(digit not in "0123456789abcdef" for digit in text)):
        raise UsageError(f"{options.FIRST_JOB_ID.key} is {text!r}: expected 32 hexadecimal digits")
    return text


def _absolute(flag: str, value: str) -> Iterable[str]:
    for item in value.split(","):
        if "://" in item:
            yield item
            continue
        path, separator, alias = item.partition("#")
        if not Path(path).exists():
            raise UsageError(f"--{flag} {path}: no such file")
        yield str(Path(path).absolute()) + separator + alias


def _read_properties(path: str) -> dict[str, str]:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UsageError(f"--properties-file {path}: {error.strerror}") from error
    found = {}
    for line in lines:
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        key, _, value = text.replace("=", " ", 1).partition(" ")
        if key.startswith("spark."):
            found[key] = value.strip()
    return found
