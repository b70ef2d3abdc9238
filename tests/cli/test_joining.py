"""A process that starts proves its register: what breaks meanwhile is tried again, for a time."""

from __future__ import annotations

import asyncio
import errno
import time

import pytest

from tests.ha import ground
from tests.support.faulty_register import Durable, Fault, Faults
from understudy.cli.launch.joining import check_joinable
from understudy.config import Configuration, options
from understudy.errors import ConfigurationError, ForeignDataError, UsageError
from understudy.ha.backends.zookeeper import options as zk

BOUND_S, PATIENT_S = 3, 30


def bound_by(seconds: float) -> Configuration:
    return Configuration(
        {
            options.HA_TYPE.key: "zookeeper",
            zk.ZK_QUORUM.key: "zk1:2181",
            zk.ZK_CONNECTION_TIMEOUT.key: f"{seconds} s",
        }
    )


CONFIGURATION = bound_by(BOUND_S)
ON_FILES = Configuration({})
TRIED = rf"tried for {BOUND_S} s \({zk.ZK_CONNECTION_TIMEOUT.key}\)"


def join(faults: Faults, configuration: Configuration = CONFIGURATION) -> None:
    asyncio.run(check_joinable(configuration, ground.services(Durable(), faults)))


@pytest.mark.parametrize("fault", [Fault.FAILS, Fault.ANSWER_LOST])
def test_what_breaks_once_is_tried_again_and_told_once(
    fault: Fault, caplog: pytest.LogCaptureFixture
) -> None:
    clean = Faults()
    join(clean)
    removed = next(call.number for call in clean.calls if call.verb == "remove")
    told: list[list[str]] = []
    for call in clean.calls:
        if call.number in {removed - 1, removed}:
            continue  # Whether it is removed is looked at next, and is no fault of the wire.
        caplog.clear()
        join(Faults({call.number: fault}), bound_by(PATIENT_S))
        told.append([record.getMessage() for record in caplog.records])

    assert all(len(lines) <= 1 for lines in told)
    lines = [line for one in told for line in one]
    assert len(lines) >= (2 if fault is Fault.ANSWER_LOST else len(told))
    assert all(f"trying again for up to {PATIENT_S} s" in line for line in lines)


def test_a_register_that_never_answers_is_given_up_within_the_bound_and_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    faults = Faults(lasting=lambda _: True)
    began = time.monotonic()
    with pytest.raises(UsageError, match=f"the register cannot be used: .* was lost; {TRIED}"):
        join(faults)
    took_s = time.monotonic() - began

    creates = [call for call in faults.calls if call.verb == "create"]
    assert 2 <= len(creates) <= 40
    assert took_s < BOUND_S + 5
    assert 1 == len(caplog.records)


def test_without_servers_that_may_come_back_nothing_is_tried_again() -> None:
    faults = Faults(lasting=lambda _: True)
    with pytest.raises(UsageError, match=r"the register cannot be used: .* was lost$"):
        join(faults, ON_FILES)

    assert 1 == sum(call.verb == "create" for call in faults.calls)


@pytest.mark.parametrize(
    ("error", "match"),
    [
        (PermissionError(errno.EACCES, "correct their ACL"), "correct their ACL$"),
        (ConfigurationError("refuses who we say we are"), "refuses who we say we are$"),
        (ForeignDataError("of another cluster"), "of another cluster$"),
    ],
)
def test_what_trying_again_does_not_heal_is_told_at_once(error: Exception, match: str) -> None:
    services = ground.services(Durable())
    tries: list[str] = []

    class Refusing:
        async def prove(self) -> None:
            tries.append("")
            raise error

    services.backend = Refusing()  # type: ignore[assignment]
    with pytest.raises(UsageError, match=match):
        asyncio.run(check_joinable(CONFIGURATION, services))

    assert 1 == len(tries)
