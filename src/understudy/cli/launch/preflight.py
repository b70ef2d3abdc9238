"""Checks of what drivers need on this host, before anything is started or stored.

Without them each driver would fail at its start, be replaced, and leave a run that never ran. A
check here refuses only what no driver could use; what may come later (executors, a busy cluster)
is waited for as ever.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Mapping

from understudy.config import Configuration, options
from understudy.config.configuration import quoted
from understudy.errors import ConfigurationError, UsageError
from understudy.installing import install_command
from understudy.process.limits import machine_bytes
from understudy.spark import java, masters
from understudy.spark.installed import pyspark_version

MASTER = "spark.master"
CONNECT_S = 5.0
"""Longest time for one try of one address: a host that drops packets answers nothing."""

PAUSE_S = 0.5

DRIVER_BYTES = 512 << 20
"""Memory of a warm driver: a JVM that has run one query, and its Python (measured)."""


def check_drivers_start(configuration: Configuration) -> None:
    """Raise `UsageError` where no driver can start on this host: no PySpark, or no Java."""
    if not _has_sessions(configuration):
        return
    if pyspark_version() is None:
        raise UsageError(
            f"PySpark is not installed for {sys.executable}: run `{install_command('pyspark')}`, "
            "or name the interpreter that has it with --python"
        )
    java.check_home()
    java.find_java()


def check_master(configuration: Configuration, conf: Mapping[str, str]) -> str:
    """Return the configured master, empty without one; raise `UsageError` if Spark refuses it."""
    master = conf.get(MASTER) or configuration.passed_on("spark.").get(MASTER, "")
    if not master or not _has_sessions(configuration):
        return ""
    if problem := masters.problem_of(master):
        raise UsageError(f"--master {quoted(master)}: {problem}")
    return master


def check_master_answers(configuration: Configuration, conf: Mapping[str, str]) -> None:
    """Raise `UsageError` where drivers of this host could not reach their master."""
    master = check_master(configuration, conf)
    patience_s = configuration.get(options.MASTER_TIMEOUT)
    places = masters.places_of(master)
    if not places or not patience_s:
        return
    give_up_at = time.monotonic() + patience_s
    while why := _unreachable(places, give_up_at):
        if time.monotonic() + PAUSE_S >= give_up_at:
            raise UsageError(
                f"--master {quoted(master)} cannot be reached ({why}): start the Master, correct "
                f"the URL, or set {options.MASTER_TIMEOUT.key} to wait longer than "
                f"{patience_s:g} s (0: do not check)"
            )
        time.sleep(PAUSE_S)


def _has_sessions(configuration: Configuration) -> bool:
    return configuration.get(options.DRIVER_KIND) == "spark"


def _unreachable(places: list[tuple[str, int]], give_up_at: float) -> str:
    """Return why none of these places accepts a connection; empty if one does."""
    why = ""
    for host, port in places:
        left_s = max(0.1, min(CONNECT_S, give_up_at - time.monotonic()))
        try:
            with socket.create_connection((host, port), timeout=left_s):
                return ""
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or str(error) or "it does not answer"
    return why


def check_drivers_fit(configuration: Configuration, taskmanagers: int = 1) -> None:
    """Raise `ConfigurationError` where the drivers do not fit into memory."""
    if configuration.get(options.DRIVER_KIND) != "spark":
        return
    slots, spares = configuration.get(options.SLOTS), configuration.get(options.SPARES)
    drivers = (slots + spares) * taskmanagers
    available = machine_bytes()
    if available and drivers * DRIVER_BYTES > available:
        raise ConfigurationError(
            f"{drivers} drivers ({taskmanagers} TaskManager(s) with {slots} slot(s) and {spares} "
            f"spare(s)) need about {drivers * DRIVER_BYTES >> 20} MB, this machine has "
            f"{available >> 20} MB: lower --slots or {options.SPARES.key}"
        )
