"""Sending orders to hosts: to this one directly, to another one over ssh.

On the other host the same program reads the order from standard input and answers on standard
output. No part of an order is on a command line, where other users could read it.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from understudy.cli.launch.hosts import is_this_host
from understudy.cli.launch.members import UP_S, Account, Order, Wanted, carry_out
from understudy.config import Configuration, options
from understudy.errors import ConfigurationError, UnderstudyError

ANSWER = "understudy-accounts "
"""Prefix of the answer's line: a host may print a greeting at login."""

CONNECT_S = 10
"""How long an ssh connection may take."""

DEADLINE_S = CONNECT_S + UP_S + 20.0
"""How long another host may take in total, beyond the drain of its TaskManagers."""

HOSTS_AT_ONCE = 32
"""How many hosts are contacted at the same time."""

LINES_SHOWN = 5


def remote_command(configuration: Configuration, host: str) -> list[str]:
    """Return the ssh command for an order. Raises `ConfigurationError`."""
    try:
        further = shlex.split(configuration.get(options.SSH_OPTIONS))
        ssh = shlex.split(configuration.get(options.SSH_COMMAND))
    except ValueError as error:
        raise ConfigurationError(
            f"{options.SSH_COMMAND.key} or {options.SSH_OPTIONS.key}: {error}"
        ) from error
    python = configuration.find(options.SSH_PYTHON) or sys.executable
    there = shlex.join([python, "-m", "understudy", "cluster", "member"])
    fixed = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_S}"]
    return [*ssh, *further, *fixed, host, there]


def give(configuration: Configuration, orders: Sequence[Order]) -> list[Account]:
    """Send all orders at once; return the accounts in the order of the orders.

    Blocks until all hosts have answered or timed out. Each process of an unreachable host gets the
    state ``unreachable`` with the reason.
    """
    if not orders:
        return []
    with ThreadPoolExecutor(min(len(orders), HOSTS_AT_ONCE)) as pool:
        answers = pool.map(lambda order: _give(configuration, order), orders)
        return [account for accounts in answers for account in accounts]


def _give(configuration: Configuration, order: Order) -> list[Account]:
    try:
        if is_this_host(order.host):
            return carry_out(order)
        return _over_ssh(remote_command(configuration, order.host), order)
    except (UnderstudyError, OSError) as error:
        return _unreachable(order, str(error))


def _over_ssh(command: list[str], order: Order) -> list[Account]:
    deadline_s = DEADLINE_S + Configuration(order.settings).get(options.DRAIN_TIMEOUT)
    try:
        done = subprocess.run(
            command,
            input=msgspec.json.encode(order),
            capture_output=True,
            timeout=deadline_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return _unreachable(order, f"no answer within {deadline_s:g} s")
    for line in done.stdout.decode(errors="replace").splitlines():
        if line.startswith(ANSWER):
            try:
                return msgspec.json.decode(line.removeprefix(ANSWER), type=list[Account])
            except msgspec.MsgspecError as error:
                return _unreachable(order, f"it answers what is not understood: {error}")
    said = done.stderr.decode(errors="replace").strip().splitlines()[-LINES_SHOWN:]
    what = f"{command[0]} ended with exit code {done.returncode}"
    return _unreachable(order, "\n  ".join([what, *said]))


def _unreachable(order: Order, why: str) -> list[Account]:
    return [_one(order, wanted, why) for wanted in order.members]


def _one(order: Order, wanted: Wanted, why: str) -> Account:
    return Account(
        order.host, wanted.role, wanted.number, "unreachable", why=why, under=wanted.under
    )


def answer_to(data: bytes) -> str:
    """Carry out an order from another host; return the answer's line.

    Raises `UnderstudyError` if ``data`` is not an order.
    """
    try:
        order = msgspec.json.decode(data, type=Order)
    except msgspec.MsgspecError as error:
        raise UnderstudyError(
            f"this is no order of this version of Understudy: {error}; it is for `understudy "
            "cluster` on another host, which must have the same version"
        ) from error
    return ANSWER + msgspec.json.encode(carry_out(order)).decode()
