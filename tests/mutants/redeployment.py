"""Mutants of other code over an unfinished run, and of leaders that come too late."""

from __future__ import annotations

from tests.mutants.mutant import mutant

REDEPLOYMENT = (
    mutant(
        "a failover deploys again", 8, "jobmanager/redeployment.py",
        "if body.record.digest != changes.over:",
        "if body.record.digest == '':",
        "tests/jobmanager/test_redeployment.py",
    ),
    mutant(
        "an attempt of the code before counts as of the new since its plan is", 3,
        "core/recovery.py",
        "return entry.intent.deployment != deployment",
        "return entry.deployment != deployment",
        "tests/core/test_recovery.py",
    ),
    mutant(
        "what is found staged brings a discarded result back", 8, "jobmanager/redeployment.py",
        "            intent=None,\n",
        "",
        "tests/jobmanager/test_redeployment.py",
    ),
    mutant(
        "other code brings the ids of its own jobs", 2, "jobmanager/redeployment.py",
        "record = replace(record, first_job_id=old.first_job_id)",
        "record = replace(record, first_job_id='')",
        "tests/jobmanager/test_redeployment.py",
    ),
    mutant(
        "a deposed leader sweeps what it lists only then", 1, "jobmanager/dispatcher.py",
        "        for name in directories:\n",
        "        for name in await services.storage.names(base):\n",
        "tests/jobmanager/test_late_leader.py",
    ),
    mutant(
        "two leaders write their results to one path", 1, "ha/layout.py",
        "/result-{term}.json",
        "/result.json",
        "tests/jobmanager/test_late_leader.py",
    ),
)  # fmt: skip
