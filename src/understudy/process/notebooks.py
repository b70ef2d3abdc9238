"""A Jupyter notebook as a script: its code cells, in order, each under a comment with its number.

Only Python runs. What only IPython understands (``%magic``, ``!command``, ``name?``) is refused, as
skipping it could change what the notebook does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from understudy.errors import UsageError

SUFFIX = ".ipynb"

WAY_OUT = (
    "remove it, or convert the notebook (jupyter nbconvert --to script) and correct the script"
)

_OF_IPYTHON = re.compile(r"\s*([%!?]|[\w.]+\?{1,2}\s*$|[\w, ]+=\s*[%!])")
"""How a line begins that only IPython understands; asked of lines that Python does not."""


def as_script(text: bytes, name: str) -> bytes:
    """Return the code cells of a notebook as one script. Raises `UsageError`."""
    return "".join(_cell(number, source, name) for number, source in _code(text, name)).encode()


def _cell(number: int, source: str, name: str) -> str:
    where = f"{name}, cell {number}"
    try:
        compile(source, where, "exec", dont_inherit=True)
    except SyntaxError as error:
        line = error.lineno or 1
        typed = "".join(source.splitlines()[line - 1 : line]).strip()
        if _OF_IPYTHON.match(typed):
            raise UsageError(f"{where}: only IPython understands `{typed}`: {WAY_OUT}") from error
        raise UsageError(f"{where}, line {line}: {error.msg}: correct the cell") from error
    except ValueError as error:
        raise UsageError(f"{where}: Python cannot compile it: {error}") from error
    return f"# cell {number}\n{source.rstrip()}\n\n"


def _code(text: bytes, name: str) -> Iterator[tuple[int, str]]:
    """Yield the number, from 1 and among all cells, and the source of each code cell."""
    try:
        found: Any = msgspec.json.decode(text)
        cells, about = found["cells"], found.get("metadata", {})
        language = about.get("language_info", {}).get("name", "python")
        told = [(one["cell_type"], one["source"]) for one in cells]
        sources = [(kind, said if isinstance(said, str) else "".join(said)) for kind, said in told]
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{name} is no Jupyter notebook of format 4: convert it with "
            "jupyter nbconvert --to notebook --nbformat 4"
        ) from error
    if language != "python":
        raise UsageError(f"{name} is a notebook in {language}: only Python can be run")
    for number, (kind, source) in enumerate(sources, start=1):
        if kind == "code" and source.strip():
            yield number, source
