"""spark-submit's flags, declared once for all commands that take an application.

With ``--requirements``, which belongs beside ``--py-files`` and ``--archives``.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from understudy.cli.launch.flags import flag
from understudy.config import Configuration, options
from understudy.errors import UsageError
from understudy.process.archives import check_archive
from understudy.process.given_files import FILE_SETTINGS
from understudy.spark import properties
from understudy.spark.masters import ELSEWHERE, refuse_others

SETTINGS = {
    "master": "spark.master",
    "driver-memory": "spark.driver.memory",
    "driver-cores": "spark.driver.cores",
    "driver-java-options": "spark.driver.extraJavaOptions",
    "driver-class-path": "spark.driver.extraClassPath",
    "driver-library-path": "spark.driver.extraLibraryPath",
    "executor-memory": "spark.executor.memory",
    "executor-cores": "spark.executor.cores",
    "num-executors": "spark.executor.instances",
    "total-executor-cores": "spark.cores.max",
    "packages": "spark.jars.packages",
    "exclude-packages": "spark.jars.excludes",
    "repositories": "spark.jars.repositories",
    "queue": "spark.yarn.queue",
}
"""Flags that set a Spark setting."""

OTHERS = {
    "name": "What the application is called.",
    "py-files": "Python files (.py), archives (.zip, .egg), wheels (.whl), with commas between.",
    "properties-file": "A file of Spark settings.",
}

REQUIREMENTS_HELP = "A requirements file: APP and its drivers run in an environment that has them."

WITHOUT_MEANING = {
    "class": "applications are Python",
    "deploy-mode": ELSEWHERE,
    "supervise": "everything is supervised",
}

PANEL = "spark-submit"


@dataclass(frozen=True, slots=True)
class SparkSubmit:
    """The parsed spark-submit flags.

    Attributes:
        name: the application's name, None if not given.
        py_files: absolute paths.
        conf: Spark's settings.
        requirements: the absolute path of the requirements file; empty if not given.
    """

    name: str | None = None
    py_files: tuple[str, ...] = ()
    conf: Mapping[str, str] = field(default_factory=dict)
    requirements: str = ""

    @staticmethod
    def flags() -> list[inspect.Parameter]:
        """Return the flags as a command declares them."""
        return [*_flags()]

    @classmethod
    def formed(cls, typed: Mapping[str, Any]) -> SparkSubmit:
        """Return what the flags say. Raises `UsageError`."""
        return _said({name: value for name, value in typed.items() if value})


def _flags() -> Iterator[inspect.Parameter]:
    yield _flag("conf", list[str], "--conf", "-c", metavar="KEY=VALUE", help="Sets KEY.")
    for name, meaning in OTHERS.items():
        yield _flag(name, str, f"--{name}", help=meaning)
    yield _flag("requirements", str, "--requirements", metavar="FILE", help=REQUIREMENTS_HELP)
    for name, setting in {**SETTINGS, **FILE_SETTINGS}.items():
        yield _flag(name, str, f"--{name}", help=f"Sets {setting}.")
    for name in WITHOUT_MEANING:
        yield _flag(name, bool if name == "supervise" else str, f"--{name}", hidden=True)


def _flag(name: str, kind: Any, *declarations: str, **more: Any) -> inspect.Parameter:
    option = typer.Option(*declarations, rich_help_panel=PANEL, show_default=False, **more)
    return flag(f"spark_{name.replace('-', '_')}", Annotated[kind | None, option])


def _said(given: Mapping[str, Any]) -> SparkSubmit:
    said = {name.removeprefix("spark_").replace("_", "-"): given[name] for name in given}
    for name, reason in WITHOUT_MEANING.items():
        if name in said and (name, said[name]) != ("deploy-mode", "client"):
            shown = f"--{name}" if said[name] is True else f"--{name} {said[name]}"
            raise UsageError(f"{shown} has no meaning here: {reason}")
    py_files = (str(Path(path).absolute()) for path in said.get("py-files", "").split(",") if path)
    conf = spark_conf(said, said.get("conf", ()), said.get("properties-file"))
    file = said.get("requirements")
    return SparkSubmit(
        said.get("name"), tuple(py_files), conf, str(Path(file).absolute()) if file else ""
    )


def spark_conf(
    flags: Mapping[str, Any], conf: Iterable[str], properties_file: str | None
) -> dict[str, str]:
    """Return Spark's settings in spark-submit's order: file, then flags, then --conf wins."""
    found: dict[str, str] = {}
    if properties_file:
        found.update(_read_properties(properties_file))
        _check_archives(found.get("spark.archives", ""))
    for name, value in flags.items():
        if name in SETTINGS:
            found[SETTINGS[name]] = value
        elif name in FILE_SETTINGS:
            found[FILE_SETTINGS[name]] = ",".join(_absolute(name, value))
    for item in conf:
        key, separator, value = item.partition("=")
        if not separator or not key.startswith("spark."):
            raise UsageError(f"--conf {item!r}: expected spark.key=value")
        found[key] = value
        if key == "spark.archives":
            _check_archives(value)
    refuse_others(found, {})
    return found


def check_configured(configuration: Configuration, conf: Mapping[str, str]) -> None:
    """Raise `UsageError` for what `spark_conf` refuses, said in the configuration.

    And for an environment that drivers would inherit. ``conf`` is what the flags have said.
    """
    if configuration.get(options.DRIVER_KIND) != "spark":
        return
    further = configuration.passed_on("spark.")
    refuse_others({**further, **conf}, os.environ)
    _check_archives(further.get("spark.archives", ""))


def _check_archives(given: str) -> None:
    """Check local archives named by a setting: Spark unpacks them, too."""
    for item in given.split(","):
        path, _, alias = item.strip().removeprefix("file://").partition("#")
        if path and "://" not in path and Path(path).is_file():
            check_archive("conf spark.archives", Path(path), alias)


def _absolute(flag: str, value: str) -> Iterable[str]:
    for item in value.split(","):
        if "://" in item:
            yield item
            continue
        path, separator, alias = item.partition("#")
        if not Path(path).exists():
            raise UsageError(f"--{flag} {path}: no such file")
        if flag == "archives":
            check_archive(flag, Path(path), alias)
        yield str(Path(path).absolute()) + separator + alias


def _read_properties(path: str) -> dict[str, str]:
    try:
        return properties.read(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"--properties-file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"--properties-file {path}: not text in UTF-8") from error
    except ValueError as error:
        raise UsageError(f"--properties-file {path}: {error}") from error
