"""Mutants of what is done so that nothing is recorded that did not happen; see `catalogue`."""

from __future__ import annotations

from tests.mutants.mutant import mutant

SAFETY = (
    mutant(
        "an end is taken for a death", 3, "core/job.py",
        "if not event.dead and _needs_proof(state, event):",
        "if False:",
        "tests/core/test_job_steps.py",
    ),
    mutant(
        "an exception is told before its processes are reaped", 3, "taskmanager/driver_pool.py",
        "if ended.status is JobStatus.FINISHED and not stopped:",
        "if True:",
        "tests/taskmanager/test_driver_pool.py",
    ),
    mutant(
        "a savepoint is taken beside what has finished", 3, "core/job.py",
        "return saved or ended.status is not JobStatus.FINISHED",
        "return ended.status is not JobStatus.FINISHED",
        "tests/core/test_job_steps.py",
    ),
    mutant(
        "an attempt has a second end", 2, "driver/attempt.py",
        "        if self._outcome is not None:\n            return",
        "        if self._outcome is None and False:\n            return",
        "tests/driver/test_driver.py",
    ),
    mutant(
        "staging is given up", 2, "driver/attempt.py",
        "data), FOR_EVER\n",
        "data)\n",
        "tests/driver/test_driver.py",
    ),
    mutant(
        "a child that comes back goes on as its parent", 2, "process/forks.py",
        "        return os.getpid() == self._pid\n",
        "        return True\n",
        "tests/driver/test_driver.py",
    ),
    mutant(
        "an interrupt before its attempt is forgotten", 3, "driver/interrupts.py",
        "            if self.has(deploy):\n                raise Interrupted",
        "            if False:\n                raise Interrupted",
        "tests/driver/test_driver.py",
    ),
    mutant(
        "what a killed job has stored is replaced", 2, "driver/driver_process.py",
        " and not attempt.is_staged():",
        ":",
        "tests/driver/test_driver_process.py",
    ),
    mutant(
        "the limits of a job are forgotten", 7, "jobmanager/job_master.py",
        "retries=self.entry.limits.retries",
        "retries=None",
        "tests/jobmanager/test_submitted_with.py",
    ),
    mutant(
        "the limits of the code before stay", 7, "jobmanager/job_requests.py",
        "                limits=request.limits,\n",
        "",
        "tests/jobmanager/test_submitted_with.py",
    ),
    mutant(
        "arguments are compared with those of the code before", 7, "jobmanager/job_requests.py",
        "entry.arguments if entry.deployment == self._context.deployment else {}",
        "entry.arguments",
        "tests/jobmanager/test_submitted_with.py",
    ),
    mutant(
        "a long attempt resets a limit of the job", 3, "core/restart.py",
        "    if restarts.failures >= retries:",
        "    if restarts.failures >= retries and ran_s < strategy.reset_s:",
        "tests/core/test_restart.py",
    ),
    mutant(
        "what no attempt can mend is retried", 7, "driver/attempt.py",
        "return not is_listed(classes, no_retry) and",
        "return",
        "tests/driver/test_driver.py",
    ),
    mutant(
        "what a store does not give is refused for good", 7, "driver/attempt.py",
        "return isinstance(error, OF_THE_MOMENT)",
        "return False",
        "tests/driver/test_driver.py",
    ),
    mutant(
        "a disk that fails once ends the attempt", 7, "driver/safe_writes.py",
        "return persist_on_disk(what, operation, is_passing)",
        "return operation()",
        "tests/driver/test_safe_writes.py",
    ),
    mutant(
        "with its tombstone it is forgotten that a run has ended", 2, "ha/registry.py",
        "ended[stone.run_id] = stone.status",
        "pass",
        "tests/ha/test_registry.py",
    ),
    mutant(
        "a run that ended before the tombstones runs again", 2, "core/recovery.py",
        "if run and run in registry.ended:",
        "if False:",
        "tests/core/test_recovery.py",
    ),
    mutant(
        "a result that is gone is a job that is gone", 9, "jobmanager/application_jobs.py",
        'raise ResultUnavailable(f"job {entry.name!r}: {error}") from error',
        "raise",
        "tests/jobmanager/test_awaited_results.py",
    ),
    mutant(
        "main is told of a document that is gone", 9, "jobmanager/job_requests.py",
        "raise LostDataError(str(error)) from error",
        "raise",
        "tests/jobmanager/test_awaited_results.py",
    ),
    mutant(
        "what a successor has removed is damage", 9, "jobmanager/attention.py",
        "        if highest > term:",
        "        if False:",
        "tests/jobmanager/test_late_leader.py",
    ),
    mutant(
        "a write that was sent twice on the way is another's", 8, "ha/documents.py",
        "                known = await self._load()\n                return known",
        "                known = await self._load() if attempt > 1 else None\n"
        "                return known",
        "tests/ha/test_documents.py",
    ),
    mutant(
        "a new leader removes checkpoints that jobs link", 7, "jobmanager/leftovers.py",
        "known = frozenset[str]().union(*(keys for keys in linked if keys))",
        "known = frozenset[str]()",
        "tests/jobmanager/test_many_applications.py",
    ),
    mutant(
        "a new leader takes its time, and then removes what is there", 7,
        "jobmanager/leftovers.py",
        "swept = await registry.delete_unlinked(term, documents.applications, ())",
        "swept = await registry.delete_unlinked(\n"
        "            term, (await registry.listed()).applications, documents.applications)",
        "tests/jobmanager/test_many_applications.py",
    ),
    mutant(
        "the first leftovers are removed before the leader serves", 1,
        "jobmanager/dispatcher.py",
        "        if not registry.applications:\n            await self._sweep()",
        "        await self._sweep()",
        "tests/jobmanager/test_many_applications.py",
    ),
)  # fmt: skip
