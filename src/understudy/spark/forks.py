"""Cuts forked children of a driver off from the JVM, whose connections belong to the parent.

Otherwise a child's operations on DataFrames, its garbage collection, and its return from a
``foreachBatch`` in which it was forked would reach the JVM in the parent's name.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from typing import NoReturn

from pyspark import SparkContext

from understudy.errors import UsageError


def keep_jvm_from_children() -> None:
    """Cut off each child that is forked from now on."""
    os.register_at_fork(after_in_child=cut_off)


def cut_off() -> None:
    """Replace every connection to the JVM with ``/dev/null``, and allow no new one.

    If they were closed, new files could get their descriptor numbers, and Py4J would read the JVM's
    answers from those files.
    """
    if SparkContext._gateway is not None:  # All that Py4J sends goes through this one object.
        client = SparkContext._gateway._gateway_client
        client.send_command = _refuse
        client.garbage_collect_object = _ignore
    with contextlib.suppress(Exception):  # A failure here must not change how the child behaves.
        ports = _ports()
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for name in os.listdir("/proc/self/fd") if ports else ():
            if _reaches(int(name), ports):
                os.dup2(nothing, int(name), inheritable=False)
        os.close(nothing)


def _refuse(*_: object, **__: object) -> NoReturn:
    raise UsageError(
        f"Spark was used in process {os.getpid()}, which the job forked: only the job's own "
        "process may; let the child hand over what it has found, for instance through a pipe"
    )


def _ignore(*_: object, **__: object) -> None:
    """Ignore a release of an object: the parent may still hold it."""


def _ports() -> set[int]:
    """Return the JVM's port and the port of Python's callback server."""
    gateway = SparkContext._gateway
    if gateway is None:
        return set()
    found = {gateway.gateway_parameters.port}
    with contextlib.suppress(Exception):
        if (server := gateway.get_callback_server()) is not None:
            found.add(server.get_listening_port())
    return found


def _reaches(descriptor: int, ports: set[int]) -> bool:
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return False
        with socket.socket(fileno=os.dup(descriptor)) as end:
            if end.family not in {socket.AF_INET, socket.AF_INET6}:
                return False
            here, there = end.getsockname(), end.getpeername()
    except OSError:
        return False
    return there[1] in ports or here[1] in ports
