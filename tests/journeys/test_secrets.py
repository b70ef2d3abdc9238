"""A value whose key `security.redaction.additional-keys` names is hidden by every process."""

from __future__ import annotations

from tests.journeys.apps.pin import PIN
from tests.journeys.conftest import Start

OPTIONS = (
    *("-D", "security.redaction.additional-keys=pin", "--conf", f"spark.pin={PIN}"),
    *("-D", "restart-strategy.type=none"),
)
SAID = (
    "the job knows ******",
    "the job fails with ******",
    "main knows ******",
    "main fails with ******",
)


def test_a_further_secret_is_hidden_in_the_lines_and_failures_of_main_and_of_jobs(
    start: Start,
) -> None:
    run = start("pin.py", options=OPTIONS)
    code = run.finish()
    shown = f"{run.log.read_text()}{run.events}"

    assert 1 == code
    assert [] == [said for said in SAID if said not in shown]
    assert PIN not in shown
