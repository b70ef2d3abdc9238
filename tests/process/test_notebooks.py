"""A notebook as a script: its code cells in order, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from understudy.errors import UsageError
from understudy.process.notebooks import as_script


def _notebook(*cells: Any, language: str = "python") -> bytes:
    told = [
        {"cell_type": "code", "source": one} if isinstance(one, str | list) else one
        for one in cells
    ]
    about = {"language_info": {"name": language}}
    return json.dumps({"cells": told, "metadata": about, "nbformat": 4}).encode()


def test_code_cells_are_one_script_in_order() -> None:
    text = {"cell_type": "markdown", "source": "# %not code!"}
    script = as_script(_notebook("a = 1\n", text, ["b = a\n", "b += 1"], "  "), "n.ipynb")

    assert b"# cell 1\na = 1\n\n# cell 3\nb = a\nb += 1\n\n" == script


def test_what_a_notebook_printed_is_no_part_of_the_script() -> None:
    plain = {"cell_type": "code", "source": "1 + 1"}
    executed = {**plain, "outputs": [{"data": "2"}], "execution_count": 7}

    assert as_script(_notebook(plain), "n") == as_script(_notebook(executed), "n")


@pytest.mark.parametrize(
    ("source", "typed"),
    [
        ("x = 1\n%matplotlib inline\n", "%matplotlib inline"),
        ("%%time\nx = 1", "%%time"),
        ("!ls", "!ls"),
        ("files = !ls", "files = !ls"),
        ("x = %sql SELECT 1", "x = %sql SELECT 1"),
        ("df.head?", "df.head?"),
        ("def f():\n    !ls\n", "!ls"),
    ],
)
def test_what_only_ipython_understands_is_refused_by_its_cell(source: str, typed: str) -> None:
    with pytest.raises(UsageError) as refused:
        as_script(_notebook("ok = 5 % 2", source), "n.ipynb")

    assert f"n.ipynb, cell 2: only IPython understands `{typed}`: remove it" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (_notebook("x = ("), r"n.ipynb, cell 1, line 1: '\(' was never closed"),
        (_notebook("x = 1", "\n  y = 2"), "n.ipynb, cell 2, line 2: unexpected indent"),
        (_notebook("val x = 1", language="scala"), "is a notebook in scala"),
        (b"{}", "is no Jupyter notebook of format 4"),
        (b"print(1)", "is no Jupyter notebook of format 4"),
        (b'{"worksheets": []}', "is no Jupyter notebook of format 4"),
        (b'{"cells": [1]}', "is no Jupyter notebook of format 4"),
    ],
)
def test_what_is_no_notebook_in_python_is_refused(text: bytes, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        as_script(text, "n.ipynb")
