"""Which applications know Understudy, by their sources."""

from __future__ import annotations

import gc
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from understudy.core.converted import builder_settings, imports_understudy, module_name

PLAIN = b"from pyspark.sql import SparkSession\nspark = SparkSession.builder.getOrCreate()\n"


@pytest.mark.parametrize(
    "source",
    [
        b"import understudy",
        b"import os, understudy as u",
        b"import understudy.errors",
        b"from understudy import get_environment",
        b"from understudy.errors import JobFailed",
        b"if True:\n    def f():\n        import understudy",
        b"import importlib\nu = importlib.import_module('understudy')",
        b"import runpy\nrunpy.run_module('understudy')",
        b"# coding: latin-1\nx = '\xe9'\nimport understudy",
    ],
)
def test_a_script_that_imports_it_is_converted(source: bytes) -> None:
    assert imports_understudy("app", {"app": source})


@pytest.mark.parametrize(
    "source",
    [
        PLAIN,
        b"",
        b"# import understudy",
        b'"""Without import understudy."""',
        b"import understudy_tools",
        b"spark.table('understudy.events').write.saveAsTable('understudy')",
        b"understudy = 1\nprint(understudy)",
        b"def broken(:\nimport understudy",
    ],
)
def test_a_script_that_does_not_import_it_is_not_converted(source: bytes) -> None:
    assert not imports_understudy("app", {"app": source})


@pytest.mark.parametrize(
    ("script", "others"),
    [
        (b"import helper", {"helper": b"import understudy"}),
        (b"import a.b.c", {"a": b"", "a.b": b"", "a.b.c": b"import understudy"}),
        (b"import a.b", {"a": b"import understudy", "a.b": b""}),
        (b"from a import b", {"a": b"", "a.b": b"import understudy"}),
        (
            b"import a",
            {"a": b"from . import b", "a.b": b"from .c import d", "a.c": b"import understudy"},
        ),
        (b"import a.b", {"a": b"", "a.b": b"from .c import d", "a.c": b"import understudy"}),
        (b"import a.x.y", {"a.c": b"import understudy", "a.x.y": b"from ..c import d"}),
        (b"import importlib\nimportlib.import_module('jobs')", {"jobs": b"import understudy"}),
        (b"import runpy\nrunpy.run_path('./a/b.py')", {"a.b": b"import understudy"}),
        (b"exec(open('jobs.py').read())", {"jobs": b"import understudy"}),
    ],
)
def test_modules_that_a_script_imports_count(script: bytes, others: dict[str, bytes]) -> None:
    assert imports_understudy("app", {"app": script, **others})


def test_a_script_beside_that_is_not_imported_does_not_count() -> None:
    assert not imports_understudy("app", {"app": PLAIN, "converted": b"import understudy"})


def test_a_name_in_a_string_imports_nothing() -> None:
    """A table may have the name of a module beside."""
    script = b"spark.table('orders').show()"

    assert not imports_understudy("app", {"app": script, "orders": b"import understudy"})


@pytest.mark.parametrize("entry", ["pkg.main", "pkg.__main__"])
def test_the_packages_around_an_entry_count(entry: str) -> None:
    assert imports_understudy(entry, {"pkg": b"import understudy", entry: PLAIN})


def test_modules_that_import_each_other_end_the_search() -> None:
    assert not imports_understudy("app", {"app": b"import a", "a": b"import b", "b": b"import a"})


@pytest.mark.parametrize(
    ("path", "expected"),
    [("app.py", "app"), ("a/b.py", "a.b"), ("a/__init__.py", "a"), ("a/data.txt", ""), ("a", "")],
)
def test_a_module_is_called_as_it_is_imported(path: str, expected: str) -> None:
    assert expected == module_name(path)


def test_the_settings_that_a_script_writes_down_are_found() -> None:
    source = b"""
spark = (SparkSession.builder.appName("etl").master("local[2]")
    .config("spark.driver.memory", "2g").config("spark.ui.enabled", False)
    .config("spark.sql.shuffle.partitions", 8).config("spark.jars", jars)
    .config("other", "x").config(conf=conf).getOrCreate())
"""
    expected = {
        "spark.master": "local[2]",
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "8",
    }

    assert expected == builder_settings(source)


def test_a_setting_with_two_values_is_left_out() -> None:
    source = b"b.config('spark.a', 1)\nb.config('spark.a', 2)\nb.config('spark.b', 1)\n"

    assert {"spark.b": "1"} == builder_settings(source)
    assert {} == builder_settings(b"def broken(:")


@pytest.mark.parametrize(
    "source",
    [
        b"if os.environ.get('LOCAL'): b.master('local')\nelse: b.master('local')",
        b"b = b.master('local') if local else b",
        b"try:\n    import x\nexcept ImportError:\n    b.master('local')",
        b"match where:\n    case 'here': b.master('local')",
        b"def for_tests():\n    return b.master('local')",
        b"if here:\n    for_tests()\ndef for_tests():\n    return b.master('local')",
    ],
)
def test_settings_that_are_set_on_a_condition_do_not_count(source: bytes) -> None:
    assert {} == builder_settings(source)


@pytest.mark.parametrize(
    ("source", "function"),
    [
        (b"if __name__ == '__main__':\n    b.master('local')", ""),
        (b"try:\n    b.master('local')\nfinally:\n    pass", ""),
        (b"def f():\n    g()\ndef g():\n    b.master('local')\n    f()\nf()", ""),
        (b"class App:\n    def f(self):\n        b.master('local')\nApp().f()", ""),
        (b"def f():\n    b.master('local')\nif __name__ == '__main__':\n    b.master('x')", "f"),
    ],
)
def test_settings_that_are_executed_count(source: bytes, function: str) -> None:
    assert {"spark.master": "local"} == builder_settings(source, function)


def test_many_threads_read_sources_at_once() -> None:
    """A JobManager takes many submissions at once; a collection lets threads change places."""
    source = b"\n".join(b"x%d = [f(a, [b, (c, {d: e})])]" % one for one in range(50))

    def change_places(*_: object) -> None:
        time.sleep(0)

    threshold = gc.get_threshold()
    gc.callbacks.append(change_places)
    gc.set_threshold(50)
    try:
        with ThreadPoolExecutor(4) as threads:
            found = list(threads.map(lambda _: imports_understudy("a", {"a": source}), range(8)))
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(change_places)

    assert found == [False] * 8
