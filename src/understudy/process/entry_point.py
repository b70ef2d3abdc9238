"""Executing an application's entry point: as ``main``, or whole as the function of one job."""

from __future__ import annotations

import atexit
import gc
import importlib
import importlib.util
import linecache
import logging
import sys
import threading
import types
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from understudy.config.secrets import WithoutSecrets

T = TypeVar("T")

_OF_A_LOOP = "asyncio"
"""What asyncio names the pool of an event loop; its threads have a number behind that."""


def run_script(source: bytes, script: str, args: tuple[str, ...]) -> None:
    """Execute a stored script as ``__main__``; ``script`` is the path of the submitted one."""
    module = types.ModuleType("__main__")
    module.__dict__.update({"__file__": script, "__builtins__": __builtins__})
    sys.modules["__main__"] = module
    text = source.decode("utf-8", "replace")
    # Tracebacks show the stored text, even if the file has changed since.
    linecache.cache[script] = (len(text), None, text.splitlines(keepends=True), script)
    sys.argv = [script, *args]
    compiled = compile(source, script, "exec", dont_inherit=True)
    exec(compiled, module.__dict__)  # noqa: S102 -- this is the job


def run_function(target: str, args: tuple[str, ...]) -> None:
    """Import the module of ``module:function``, and call the function."""
    module_name, _, name = target.partition(":")
    sys.argv = [target, *args]
    function: Any = importlib.import_module(module_name)
    for part in name.split("."):
        function = getattr(function, part)
    function()


def run_module(name: str, args: tuple[str, ...]) -> None:
    """Execute a module as ``python -m`` does: as ``__main__``, in its package."""
    found = importlib.util.find_spec(name)
    if found and found.submodule_search_locations is not None:
        found = importlib.util.find_spec(f"{name}.__main__")
    loader: Any = found.loader if found else None
    if found is None or loader is None:
        raise ModuleNotFoundError(f"no module {name!r} to execute", name=name)
    module = types.ModuleType("__main__")
    place = found.origin or name
    module.__dict__.update(
        {
            "__file__": place,
            "__builtins__": __builtins__,
            "__spec__": found,
            "__loader__": loader,
            "__package__": found.parent,
        }
    )
    sys.modules["__main__"] = module
    sys.argv = [place, *args]
    exec(loader.get_code(found.name), module.__dict__)  # noqa: S102 -- this is the job


def join_threads() -> None:
    """Wait for the threads that the entry point has left, as Python does at its end.

    A pool of threads ends once its work is done. The pools of event loops stay: storage may use
    them after the entry point.
    """
    for pool in [one for one in gc.get_objects() if issubclass(type(one), ThreadPoolExecutor)]:
        if pool._thread_name_prefix != _OF_A_LOOP:
            pool.shutdown(wait=False)
    for thread in threading.enumerate():
        of_a_loop = thread.name.startswith(f"{_OF_A_LOOP}_")
        if not (thread.daemon or of_a_loop or thread is threading.main_thread()):
            thread.join()


def script_job(_: object, source: bytes, script: str, args: tuple[str, ...]) -> None:
    """Execute a script as the function of a job; the context is not handed on."""
    _as_by_python(lambda: run_script(source, script, args))


def module_job(_: object, name: str, args: tuple[str, ...]) -> None:
    """Execute ``-m module`` as the function of a job; the context is not handed on."""
    _as_by_python(lambda: run_module(name, args))


def function_job(_: object, target: str, args: tuple[str, ...]) -> None:
    """Execute ``module:function`` as the function of a job; the context is not handed on."""
    _as_by_python(lambda: run_function(target, args))


def _as_by_python(execute: Callable[[], None]) -> None:
    """Execute an entry point with the beginning and the end that Python gives to a script.

    The handlers of ``atexit`` that were there before belong to the process, which does not run
    them: it leaves by ``os._exit``, as each forked process does. An interrupted script ends without
    its handlers, as by a signal.
    """
    _leave_logging_alone()
    atexit._clear()
    try:
        execute()
    except (Exception, SystemExit):
        _end()
        raise
    _end()


def _end() -> None:
    """Do what Python does at the end of a script; there is no public way to run the handlers."""
    join_threads()
    atexit._run_exitfuncs()


def call_job(_: object, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    """Call a function that expects no context, as the function of a job."""
    return function(*args, **kwargs)


def _leave_logging_alone() -> None:
    """Undo the driver's setup of logging: ``logging.basicConfig`` of a script would do nothing."""
    logging.root.handlers.clear()
    logging.root.setLevel(logging.WARNING)
    if logging.lastResort:
        logging.lastResort.setFormatter(WithoutSecrets())
