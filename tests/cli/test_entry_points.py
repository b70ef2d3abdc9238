"""Where an application begins: what is stored for it, and what is refused before it starts."""

from __future__ import annotations

import json
from pathlib import Path

import fsspec
import pytest

from understudy.cli.launch.entry_points import EntryPoint, check, entry_point, full_name
from understudy.errors import UsageError

MAIN = "def main():\n    print('ran')\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _put(place: Path, **files: str) -> None:
    for name, text in files.items():
        path = place / (name.replace("__in__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _checked(app: str, *, is_module: bool = False) -> EntryPoint:
    app = app if is_module else full_name(app)
    entry = entry_point(app, str(Path.cwd()), is_module=is_module)
    check(entry)
    return entry


def _stored(entry: EntryPoint) -> list[str]:
    return [file.name for file in entry.files]


def test_a_script_is_stored_with_the_modules_beside_it(place: Path) -> None:
    _put(place, app=MAIN, helper="x = 1")
    by_path, by_url = _checked("app.py"), _checked((place / "app.py").as_uri())

    assert by_path == by_url
    assert ("app.py", str(place / "app.py"), "app") == (by_path.target, by_path.script, "app")
    assert ["app/app.py", "app/helper.py"] == _stored(by_path)


@pytest.mark.parametrize("app", ["pkg.sub:main", "pkg:main"])
def test_a_function_is_found_in_the_current_directory(place: Path, app: str) -> None:
    _put(place, pkg__in____init__=MAIN, pkg__in__sub=MAIN, beside="x = 1")
    entry = _checked(app)

    assert (app, "", "main") == (entry.target, entry.script, entry.title)
    assert {"app/pkg/__init__.py", "app/pkg/sub.py", "app/beside.py"} == {*_stored(entry)}


def test_a_function_of_a_directory_without_an_init_is_found(place: Path) -> None:
    _put(place, plain__in__sub=MAIN)

    assert ["app/plain/sub.py"] == _stored(_checked("plain.sub:main"))


def test_a_function_below_directories_without_an_init_is_found(place: Path) -> None:
    _put(place, plain__in__deep__in__sub=MAIN)

    assert ["app/plain/deep/sub.py"] == _stored(_checked("plain.deep.sub:main"))


@pytest.mark.parametrize(
    ("module", "file"), [("pkg.sub", "app/pkg/sub.py"), ("pkg", "app/pkg/__main__.py")]
)
def test_a_module_is_stored_with_its_package(place: Path, module: str, file: str) -> None:
    _put(place, pkg__in____init__="", pkg__in____main__=MAIN, pkg__in__sub=MAIN)
    entry = _checked(module, is_module=True)

    assert (f"-m {module}", "") == (entry.target, entry.script)
    assert file == _stored(entry)[0]
    assert entry.files[0] is entry.begins
    assert 3 == len(entry.files)


def test_nothing_is_imported_to_find_a_module(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _put(place, pkg__in____init__="print('imported')", pkg__in__sub=f"print('imported')\n{MAIN}")
    _checked("pkg.sub:main")
    _checked("pkg.sub", is_module=True)

    assert ("", "") == capfd.readouterr()


def test_installed_modules_are_not_stored() -> None:
    assert () == _checked("json.tool:main").files
    assert () == _checked("pytest:main").files
    assert () == _checked("json.tool", is_module=True).files
    assert () == _checked("os:getcwd").files


def test_a_script_at_any_url_is_read_by_fsspec() -> None:
    with fsspec.open("memory://bucket/app.py", "wb") as file:
        file.write(b"print('from memory')")
    entry = _checked("memory://bucket/app.py")

    assert ("app.py", "memory://bucket/app.py", "app") == (entry.target, entry.script, entry.title)
    assert ["app/app.py"] == _stored(entry)
    assert b"print('from memory')" == entry.files[0].read()


def test_a_notebook_is_stored_as_a_script(place: Path) -> None:
    cells = [{"cell_type": "code", "source": "x = 1"}]
    (place / "n.ipynb").write_text(json.dumps({"cells": cells}))
    entry = _checked("n.ipynb")

    assert ("n.ipynb", "n", ["app/n.ipynb"]) == (entry.target, entry.title, _stored(entry))
    assert b"# cell 1\nx = 1\n\n" == entry.files[0].read()


def test_a_bad_notebook_is_refused(place: Path) -> None:
    (place / "n.ipynb").write_text("{}")

    with pytest.raises(UsageError, match=r"n.ipynb is no Jupyter notebook"):
        _checked("n.ipynb")


@pytest.mark.parametrize(
    ("app", "said"),
    [
        ("nowhere.py", "nowhere.py: no such script"),
        (".", "is a directory: give the script in it"),
        ("memory://bucket/none.py", "memory://bucket/none.py: cannot be read: no such file"),
        ("memory://bucket/", "names no file"),
        ("memory://bucket/app.jar", "only Python applications"),
        ("nonsense://bucket/app.py", "install the fsspec package for it"),
        ("nowhere:main", "nowhere:main: no module 'nowhere' in .* or on the path of .*python"),
        ("pkg.nowhere:main", "no module 'pkg.nowhere'"),
        ("pkg.sub.more:main", "no module 'pkg.sub.more'"),
        ("plain:main", "'plain' is a directory without __init__.py"),
        ("pkg.sub:nothing", "sub.py has no 'nothing'; its functions: main, needy"),
        ("pkg.sub:needy", "'needy', which needs path, to: it is called without arguments"),
        ("pkg.sub:waits", "'waits', which is asynchronous"),
        ("pkg.bad:main", "bad.py, line 1: '\\(' was never closed"),
        ("json.tool:nothing", "tool.py has no 'nothing'"),
    ],
)
def test_what_cannot_begin_is_refused(place: Path, app: str, said: str) -> None:
    needy = "def needy(path, kind='x', *, to): ...\nasync def waits(): ...\n"
    _put(place, pkg__in____init__="", pkg__in__sub=MAIN + needy, pkg__in__bad="x = (")
    _put(place, plain__in__sub=MAIN)

    with pytest.raises(UsageError, match=said):
        _checked(app)


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("pkg/sub.py", "-m pkg/sub.py: is no module's name"),
        ("nowhere", "-m nowhere: no module 'nowhere'"),
        ("pkg", "-m pkg: is a package without __main__"),
        ("pkg.bad", "bad.py, line 1: '\\(' was never closed"),
    ],
)
def test_a_module_that_cannot_begin_is_refused(place: Path, module: str, said: str) -> None:
    _put(place, pkg__in____init__="", pkg__in__bad="x = (")

    with pytest.raises(UsageError, match=said):
        _checked(module, is_module=True)


@pytest.mark.parametrize(
    "text",
    [
        "main = print",
        "from os import getcwd as main",
        "import os as main",
        "from os import *",
        "if True:\n    def main(): ...",
        "def make():\n    global main\n    main = print\nmake()",
        "globals()['main'] = print",
        "def __getattr__(name): return print",
        "def main(path='x', *rest, **more): ...",
        "import functools\n@functools.cache\ndef main(path): ...",
        "class main: ...",
        "main: object = print",
    ],
)
def test_a_function_that_a_module_may_have_is_accepted(place: Path, text: str) -> None:
    _put(place, mod=text)

    assert "mod:main" == _checked("mod:main").target


def test_a_module_beside_that_cannot_be_read_is_refused(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may read everything: so the kernel's answer is given here."""
    _put(place, app=MAIN, secret="x = 1")
    monkeypatch.setattr("os.access", lambda path, _: "secret" not in str(path))

    with pytest.raises(UsageError, match=r"secret.py lies beside app.py and cannot be read"):
        _checked("app.py")


def test_a_plain_directory_does_not_hide_a_package_further_along_the_path(
    place: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    _put(elsewhere, hidden__in____init__=MAIN, hidden__in__sub=MAIN)
    (place / "hidden").mkdir()
    monkeypatch.syspath_prepend(elsewhere)

    assert "main" == _checked("hidden:main").title
    assert "sub" == _checked("hidden.sub", is_module=True).title


@pytest.mark.parametrize("start", [b"\xef\xbb\xbf", b"# coding: latin-1\nname = '\xe9'\n"])
def test_a_module_may_have_any_encoding_of_python(place: Path, start: bytes) -> None:
    (place / "encoded.py").write_bytes(start + MAIN.encode())

    assert "main" == _checked("encoded:main").title
    with pytest.raises(UsageError, match="has no 'other'"):
        _checked("encoded:other")


def test_a_script_at_a_url_is_there_until_it_is_read(place: Path) -> None:
    _put(place, app=MAIN)
    local = _checked("app.py").files[0]
    remote = _checked(f"simplecache::file://{place / 'app.py'}").files[0]
    (place / "app.py").unlink()

    assert not local.is_there()
    assert remote.is_there()
