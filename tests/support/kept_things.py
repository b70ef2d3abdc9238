"""What an object keeps in memory: how many things of which kind, and how much its containers hold.

To find what grows with everything that has ever happened: it differs after little and after much.
"""

from __future__ import annotations

import types
from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

from understudy.model import RegistryBody

PLAIN = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, RegistryBody)
CONTAINERS = (list, tuple, set, frozenset, deque)


def things_in(root: Any) -> Counter[str]:
    """Count our objects below an object by class, and what is in each of their containers."""
    counts: Counter[str] = Counter()
    seen: set[int] = set()
    todo = [(type(root).__name__, root)]
    while todo:
        path, one = todo.pop()
        if id(one) in seen or isinstance(one, PLAIN):
            continue
        seen.add(id(one))
        if isinstance(one, types.MethodType):
            todo.append((path, one.__self__))
        elif isinstance(one, dict):
            counts[path] += len(one)
            todo += [(f"{path}[]", value) for value in (*one.keys(), *one.values())]
        elif isinstance(one, CONTAINERS):
            counts[path] += len(one)
            todo += [(f"{path}[]", value) for value in one]
        elif type(one).__module__.startswith("understudy"):
            counts[type(one).__name__] += 1
            todo += [(f"{type(one).__name__}.{name}", value) for name, value in _attributes(one)]
    return counts


def _attributes(one: Any) -> Iterator[tuple[str, Any]]:
    yield from getattr(one, "__dict__", {}).items()
    for name in (*getattr(one, "__struct_fields__", ()), *getattr(type(one), "__slots__", ())):
        if hasattr(one, name):
            yield name, getattr(one, name)
