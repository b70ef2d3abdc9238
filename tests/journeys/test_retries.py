"""Failed attempts, as a person sees them: in the terminal, in the log and in `info`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.journeys import harness
from tests.journeys.harness import SESSION_LESS, command

QUICK = (
    *("-D", "high-availability.cluster-id=retries", "--run-id", "monday"),
    *("-D", "restart-strategy.exponential-delay.initial-backoff=10ms"),
)


@pytest.mark.long  # test_crash_loops.py has jobs that fail.
def test_a_failed_attempt_is_seen_as_it_happens_in_the_log_and_in_info(place: Path) -> None:
    app = harness.put_app(place, "luckless.py")
    done = command(place, "run-application", *SESSION_LESS, *QUICK, str(app))
    log = command(place, "logs", "monday").stdout
    shown = command(place, "info", "monday").stdout
    told = json.loads(command(place, "info", "monday", "--json").stdout)

    first = "job 'retried', attempt 1, failed: ValueError: password=****** ·[2J no luck; retry 1 of"
    assert first in done.stderr
    assert 'in retried\n    raise ValueError("password=******' in done.stderr
    assert "attempt 1, failed: ImportError: nobody has this module; not restarted" in done.stderr
    assert "[retried] attempt 1 failed: Traceback" in log
    assert "retried, attempt 1: ValueError: password=******" in shown
    assert "hopeless, attempt 1: ImportError: nobody has this module" in shown
    assert [1, 1] == [one["attempt"] for job in told["jobs"] for one in job["failures"]]
    assert "hunter22" not in f"{done.stderr}{log}{shown}{told}"
    assert "\x1b[2J" not in f"{done.stderr}{shown}"
