"""What each process may import when it starts: a library on the way in costs every start."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

ALWAYS = {"msgspec", "typing_extensions"}
"""`msgspec` imports `typing_extensions` where that is installed."""

DRIVER = ALWAYS | {"cloudpickle"}

COMMAND = ALWAYS | {
    *("typer", "click", "shellingham", "annotated_doc"),
}
"""`typer` with its own needs, by version."""

THIRD_PARTY = {
    "understudy": set[str](),
    "understudy.cli.app": set[str](),
    "understudy.cli.commands.ask": COMMAND,
    "understudy.cli.launch.jobmanager_process": ALWAYS,
    "understudy.cli.launch.taskmanager_process": ALWAYS,
    "understudy.driver.driver": DRIVER,
    "understudy.application.application_process": DRIVER,
}
"""What a process runs first, with the libraries that it may import then."""

EXPENSIVE = {
    *("csv", "configparser", "email", "html", "http.client", "http.server", "importlib.metadata"),
    *("logging.config", "multiprocessing", "pydoc", "sqlite3", "tarfile", "unittest"),
    *("urllib.request", "xml", "zipfile"),
}
"""Modules of the standard library that take milliseconds, and that few processes run."""

_CODE = """
import json, sys
before = set(sys.modules)
import {module}
json.dump(sorted(set(sys.modules) - before), sys.stdout)
"""


@pytest.mark.parametrize("module", THIRD_PARTY)
def test_a_process_imports_at_its_start_what_it_runs(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _CODE.format(module=module)],
        capture_output=True,
        check=True,
        text=True,
        timeout=120,
    )
    imported = set(json.loads(done.stdout))
    libraries = {name.partition(".")[0].lstrip("_") for name in imported}
    known = {name.lstrip("_") for name in sys.stdlib_module_names} | {"understudy"}

    assert module in imported
    assert set() == libraries - known - THIRD_PARTY[module]
    assert set() == EXPENSIVE & imported
