"""A JobManager without an application of its own: it executes the application that is stored.

It may run on a host that never had the script. Until there is a run, it does not contend: as a
leader without a run, it would keep the JobManager with the application from leading.
"""

from __future__ import annotations

import asyncio
import logging

from understudy.core.backoff import Backoff
from understudy.core.recovery import SubmitRun, bootstrap
from understudy.errors import DataError
from understudy.ha.registry import REGISTRY_KEY
from understudy.ha.services import HighAvailabilityServices
from understudy.jobmanager.dispatcher import Binding
from understudy.model import RegistryBody, RunId

BACKOFF = Backoff(0.5, 30.0)
"""The pauses while the register does not answer; the standby asks for ever."""

_log = logging.getLogger(__name__)


async def until_there_is_a_run(services: HighAvailabilityServices, binding: Binding) -> None:
    """Return once a leader would have work: a run to continue, or an ended run to answer with.

    Also return for a damaged registry: the leader reports the damage.
    """
    failures, reported = 0, False
    while True:
        try:
            async for _ in services.register.changes(REGISTRY_KEY):
                if _has_run(await services.registry.read(), binding):
                    return
                failures = 0
                if not reported:
                    _log.info("stands by without an application: waits until there is a run")
                    reported = True
        except DataError as error:
            _log.warning("the registry cannot be read: %s", error)
            return
        except (OSError, TimeoutError) as error:
            _log.warning("looking for a run is interrupted: %s", str(error) or "timeout")
        failures += 1
        await asyncio.sleep(BACKOFF.pause_s(failures))


def _has_run(registry: RegistryBody | None, binding: Binding) -> bool:
    if registry is None:
        return False
    found = bootstrap(
        registry, binding.wanted, binding.bound, binding.known_at_start, RunId("to-be-minted")
    )
    return not isinstance(found, SubmitRun)
