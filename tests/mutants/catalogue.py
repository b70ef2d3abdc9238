"""The mutants: what is changed, which promise that breaks, and which tests must notice.

The number is that of the invariant in the list of the design: 1 no write of an older term, 2 no
second run of what has a result, 3 a restart only after a death, 4 the order of dirty and clean,
5 nothing is left, 6 closing keeps data, 7 what was acknowledged is kept, 8 any crash point, 9
damaged data is named, 10 terms never fall.
"""

from __future__ import annotations

from tests.mutants.artifacts import ARTIFACTS
from tests.mutants.checkpoints import CHECKPOINTS
from tests.mutants.crashes import CRASHES
from tests.mutants.kubernetes import KUBERNETES
from tests.mutants.mutant import Mutant
from tests.mutants.mutant import mutant as _mutant
from tests.mutants.pods import PODS
from tests.mutants.redeployment import REDEPLOYMENT
from tests.mutants.safety import SAFETY
from tests.mutants.sessions import SESSIONS
from tests.mutants.storage import STORAGE
from tests.mutants.submissions import SUBMISSIONS
from tests.mutants.writes import SAFE_WRITES
from tests.mutants.zookeeper import ZOOKEEPER

__all__ = ["MUTANTS", "Mutant"]

LEASE = "core/lease.py"
DOCUMENTS = "ha/documents.py"
ELECTION = "ha/election.py"
REGISTRY = "ha/registry.py"
PLANS = "ha/execution_plan_store.py"
RESULTS = "ha/result_store.py"
FILESYSTEM = "ha/backends/filesystem.py"
ENDING = "core/ending.py"
JOB = "core/job.py"
CLEANUP = "jobmanager/cleanup.py"

CORE = "tests/core/test_"
HA = "tests/ha/test_"
CONTRACT = "tests/contract/test_register.py"
PROCESSES = "tests/contract/test_register_processes.py"
KILLED = f"{PROCESSES}::test_a_kill_at_any_system_call_leaves_the_old_value_or_the_new"
RACING = f"{PROCESSES}::test_racing_increments_of_processes_lose_nothing"

MUTANTS = (
    # --- the lease and the election
    _mutant(
        "the deadline is counted from the answer", 1, LEASE,
        "deadline = write.sent_at + state.timing.renew_deadline_s",
        "deadline = write.sent_at + state.timing.lease_s",
        CORE + "lease.py",
    ),
    _mutant(
        "a lease may end with the renew deadline", 1, LEASE,
        "if self.lease_s <= self.renew_deadline_s:",
        "if self.lease_s < self.renew_deadline_s:",
        CORE + "lease.py",
    ),
    _mutant(
        "a standby does not wait for the lease", 1, LEASE,
        "if now < expires:",
        "if now < state.observed.at:",
        CORE + "lease.py",
    ),
    _mutant(
        "a standby believes its own shorter lease", 1, LEASE,
        "max(state.timing.lease_s, min(seen.lease_s, 3600.0))",
        "state.timing.lease_s",
        CORE + "lease.py",
    ),
    _mutant(
        "a term is taken over, not minted", 10, LEASE,
        "term=seen.term + 1, renewals=0",
        "term=seen.term, renewals=0",
        CORE + "lease.py",
    ),
    _mutant(
        "the registry's higher term is ignored", 10, LEASE,
        "elif record.term < floor:",
        "elif record.term < 0:",
        CORE + "lease.py", HA + "election.py",
    ),
    _mutant(
        "a leader overlooks that another leads", 1, LEASE,
        "if state.leading and (record.holder != state.me or record.term != state.leading.term):",
        "if state.leading and record.term < state.leading.term:",
        CORE + "lease.py",
    ),
    _mutant(
        "a leader acts up to and beyond its deadline", 1, LEASE,
        "state.leading is not None and now < state.leading.deadline",
        "state.leading is not None",
        CORE + "lease.py",
    ),
    _mutant(
        "each look counts as a change", 1, LEASE,
        "if state.observed is None or state.observed.record != record:",
        "if True:",
        CORE + "lease.py",
    ),
    _mutant(
        "the body is not cancelled on loss", 1, ELECTION,
        "                work.cancel()\n                await asyncio.wait({work})",
        "                await asyncio.wait({work})",
        HA + "election.py",
    ),
    _mutant(
        "an address is published before recovery", 3, ELECTION,
        'mine = replace(self._me, session=session, since=since, rest="", rpc="")',
        "mine = replace(self._me, session=session, since=since)",
        HA + "election.py",
    ),
    _mutant(
        "the guardian is not told the deadline", 1, ELECTION,
        "                self._hold(self._state.leading.deadline)\n                # What failed",
        "                # What failed",
        HA + "election.py",
    ),
    _mutant(
        "a lease that ran out is not a loss", 1, ELECTION,
        "if not lease.leads(self._state, self._clock.now()):",
        "if False:",
        HA + "election.py",
    ),
    _mutant(
        "another's lease is released", 1, ELECTION,
        "if seen and seen.holder == self._me.holder and seen.term == term:",
        "if seen:",
        HA + "election.py",
    ),
    # --- documents, registry, stores
    _mutant(
        "an update does not look at the term", 1, DOCUMENTS,
        "                if known.term > term:\n"
        '                    raise LeadershipLost(f"{self.key}: term {known.term} is newer than '
        '{term}")\n'
        "                if await self._write(",
        "                if await self._write(",
        HA + "documents.py",
    ),
    _mutant(
        "a delete does not look at the term", 1, DOCUMENTS,
        "                if known.term > term:\n"
        '                    raise LeadershipLost(f"{self.key}: term {known.term} is newer than '
        '{term}")\n'
        "                self._known = None",
        "                self._known = None",
        HA + "documents.py",
    ),
    _mutant(
        "a claim does not stamp", 1, DOCUMENTS,
        "if known and known.term == term and not anew:",
        "if known and known.term <= term:",
        HA + "documents.py",
    ),
    _mutant(
        "a lost answer counts as a lost race", 7, DOCUMENTS,
        "return known is not None and known.write_id == write_id",
        "return False",
        HA + "documents.py",
    ),
    _mutant(
        "any conflict counts as one's own write", 7, DOCUMENTS,
        "return known is not None and known.write_id == write_id",
        "return known is not None",
        HA + "documents.py",
    ),
    _mutant(
        "an older copy of the same term is taken for the document", 8, DOCUMENTS,
        "if known and known.moment < least:",
        "if known and known.term < least[0]:",
        HA + "documents.py",
    ),
    _mutant(
        "a read that a write has overtaken is taken for an older copy", 8, DOCUMENTS,
        "if known and known.moment < least:",
        "if known and known.moment < self._highest:",
        HA + "documents.py",
    ),
    _mutant(
        "a read that a write has overtaken replaces the later state", 8, DOCUMENTS,
        "if self._highest > (known.moment if known else least):",
        "if False:",
        HA + "documents.py",
    ),
    _mutant(
        "a large document is sent all the same", 8, DOCUMENTS,
        "if len(data) > VALUE_BYTES_MAX:",
        "if False:",
        HA + "documents.py",
    ),
    _mutant(
        "a sweep removes what is linked", 7, REGISTRY,
        "            if key in linked:\n                continue\n",
        "",
        HA + "registry.py",
    ),
    _mutant(
        "a damaged document stops the sweep", 9, REGISTRY,
        "            except DataError as error:\n                _log.warning(",
        "            except ZeroDivisionError as error:\n                _log.warning(",
        HA + "registry.py",
    ),
    _mutant(
        "an application is buried without a tombstone", 2, REGISTRY,
        "            if tombstone is None:\n",
        "            if tombstone is not None:\n",
        HA + "registry.py",
    ),
    _mutant(
        "a foreign registry is taken", 9, REGISTRY,
        "if body.cluster_id != self._cluster_id:",
        "if False:",
        HA + "registry.py",
    ),
    _mutant(
        "a segment is linked before it is there", 8, PLANS,
        "        await document.create(term, body)\n        await self._application.update(\n"
        "            term, lambda body: replace(body, segments=(*body.segments, document.key))\n"
        "        )\n",
        "        await self._application.update(\n"
        "            term, lambda body: replace(body, segments=(*body.segments, document.key))\n"
        "        )\n        await document.create(term, body)\n",
        HA + "execution_plan_store.py", "tests/jobmanager/test_cleanup.py",
    ),
    _mutant(
        "a segment is never full", 8, PLANS,
        "if len(body.jobs) < SEGMENT_JOBS_MAX:",
        "if True:",
        HA + "execution_plan_store.py",
    ),
    _mutant(
        "segments are not claimed", 1, PLANS,
        "            body = await document.claim(term)\n            self._segments",
        "            body = await document.read()\n            assert body\n"
        "            self._segments",
        HA + "execution_plan_store.py",
    ),
    _mutant(
        "a note is forgotten when its write fails", 8, PLANS,
        "            self._notes[document.key] = [*notes, *self._notes.get(document.key, ())]\n",
        "",
        HA + "execution_plan_store.py",
    ),
    _mutant(
        "an altered result is believed", 9, RESULTS,
        "return data if digest(data) == expected_digest else None",
        "return data",
        HA + "result_store.py",
    ),
    _mutant(
        "the dirty file is removed before the clean one is there", 8, RESULTS,
        "            await self._storage.publish(self.clean_path(result_id), data)\n"
        "        await self._storage.delete(dirty)",
        "            await self._storage.delete(dirty)\n"
        "            await self._storage.publish(self.clean_path(result_id), data)\n"
        "        await self._storage.delete(dirty)",
        HA + "result_store.py", "tests/jobmanager/test_cleanup.py",
    ),
    _mutant(
        "an application is linked before its document is there", 7, "ha/application_store.py",
        "        await document.create(term, body)\n"
        "        link = RegistryLink(document=document.key, run_id=record.run_id, "
        "request=record.request)\n"
        "        await self._registry.link(term, record.application_id, link)\n",
        "        link = RegistryLink(document=document.key, run_id=record.run_id, "
        "request=record.request)\n"
        "        await self._registry.link(term, record.application_id, link)\n"
        "        await document.create(term, body)\n",
        HA + "application_store.py",
    ),
    _mutant(
        "another application's record is executed", 9, "ha/application_store.py",
        "if record.application_id != body.application_id:",
        "if False:",
        HA + "application_store.py",
    ),
    _mutant(
        "an altered blob is executed", 9, "ha/blobs.py",
        "if digest(body) != artifact.digest:",
        "if False:",
        HA + "blobs.py",
    ),
    # --- the register in a directory
    _mutant(
        "a create overwrites", 7, FILESYSTEM,
        "                if _token(directory) is not None:\n"
        '                    raise Conflict(f"{key}: expected to be absent") from None\n',
        "                if _token(directory) is not None:\n"
        "                    return self._replace(key, value, _token(directory) or '')\n",
        CONTRACT,
    ),
    _mutant(
        "the token comes before the value", 8, FILESYSTEM,
        '            (directory / f"{_TOKEN}{expected}").rename(directory / f"{_TOKEN}{version}")\n'
        "        except FileNotFoundError:\n            draft",
        '            draft.rename(directory / f"{_VALUE}x")\n'
        '            (directory / f"{_TOKEN}{expected}").rename(directory / f"{_TOKEN}{version}")\n'
        '            (directory / f"{_VALUE}x").rename(draft)\n'
        "        except FileNotFoundError:\n            draft",
        KILLED,
    ),
    _mutant(
        "the next writer's draft is removed", 7, FILESYSTEM,
        'not kept and name[len(_VALUE) :].split(".")[0] <= number:',
        "not kept:",
        CONTRACT, RACING,
    ),
    _mutant(
        "a version is used twice", 7, FILESYSTEM,
        'raise Conflict(f"{key}: version {expected} was replaced") from None\n'
        "        if _sync",
        "return version\n        if _sync",
        CONTRACT,
    ),
    # --- deciding: jobs, the end, recovery, takeover
    _mutant(
        "jobs are clean before the application is dirty", 4, ENDING,
        "if application.result is None or any(job.result is None for job in jobs):",
        "if any(job.result is None for job in jobs):",
        CORE + "ending.py",
    ),
    _mutant(
        "the application is clean before its things are gone", 5, ENDING,
        "if EndingStep.CLEAN_APPLICATION not in done:",
        "if False:",
        CORE + "ending.py",
    ),
    _mutant(
        "no tombstone is written", 2, ENDING,
        "if application.tombstone is None:",
        "if False:",
        CORE + "ending.py",
    ),
    _mutant(
        "a job's cleanup is skipped", 5, ENDING,
        "CleanJob(job.job_id) for job in jobs if job.result and not job.result.cleaned",
        "CleanJob(job.job_id) for job in jobs if job.result and job.result.clean",
        CORE + "ending.py",
    ),
    _mutant(
        "a lost attempt is restarted without a look", 2, JOB,
        "            state, commands = _look(state, event.reason, event.ran_s)",
        "            state, commands = _restart_after_loss(state, strategy, chance, False)",
        CORE + "job.py", CORE + "job_steps.py",
    ),
    _mutant(
        "an attempt that is handed over counts as lost", 7, JOB,
        "    if not state.handed_over:",
        "    if state.job_id:",
        CORE + "job.py",
    ),
    _mutant(
        "an attempt is deployed before its intent is durable", 3, JOB,
        "return state, [StoreIntent(state.attempt, placement, state.restarts)]",
        "return state, [DeployAttempt(state.attempt, placement)]",
        CORE + "job.py", CORE + "job_steps.py",
    ),
    _mutant(
        "an attempt's number is used again", 3, JOB,
        "attempt=state.attempt + 1,",
        "attempt=max(1, state.attempt),",
        CORE + "job.py", CORE + "job_steps.py",
    ),
    _mutant(
        "the word of an older attempt counts", 3, JOB,
        "case Ended() if event.attempt == state.attempt and _awaits_end(state):",
        "case Ended() if _awaits_end(state):",
        CORE + "job.py", CORE + "job_steps.py", CORE + "job_explored.py",
    ),
    _mutant(
        "a finished job that was cancelled has no result", 2, JOB,
        "    if ended.status is JobStatus.FINISHED:\n        return _record(state, ended.status, "
        'ended.source, "")\n    if state.cancelled:',
        "    if state.cancelled:",
        CORE + "job.py", CORE + "job_steps.py",
    ),
    _mutant(
        "a job with a result is run again after a failover", 2, JOB,
        "return replace(state, phase=Phase.DONE, status=entry.result.status)",
        "return state",
        CORE + "job.py", CORE + "job_steps.py",
    ),
    _mutant(
        "an ended run is run again", 2, "core/recovery.py",
        "        if run and run in registry.tombstones:\n"
        "            return AnswerRun(registry.tombstones[run])\n",
        "",
        CORE + "recovery.py",
    ),
    _mutant(
        "an attempt of another intent is adopted", 3, "core/recovery.py",
        "if expected.get(item.job_id) == item.attempt:",
        "if item.job_id in expected:",
        CORE + "recovery.py",
    ),
    _mutant(
        "the grace is counted from nowhere", 3, "core/liveness.py",
        "if now >= at + silence.grace_s",
        "if now >= at",
        CORE + "liveness.py",
    ),
    _mutant(
        "half the adoption grace is enough", 3, "core/liveness.py",
        "if now >= at + silence.grace_s",
        "if now >= at + silence.grace_s / 2",
        CORE + "liveness.py",
    ),
    _mutant(
        "what another run of the cluster has in Spark is ended", 3, "core/executors.py",
        "            one.tag.run_id in ended\n",
        "            one.tag.run_id != tag.run_id\n",
        CORE + "executors.py",
    ),
    _mutant(
        "orphans run on for twice their time", 3, "core/liveness.py",
        "return answered_request_sent_at + orphan_s",
        "return answered_request_sent_at + 2 * orphan_s",
        CORE + "liveness.py",
    ),
    _mutant(
        "the death of another attempt counts", 3, JOB,
        "case Lost() if event.attempt == state.attempt and _awaits_end(state):",
        "case Lost() if _awaits_end(state):",
        CORE + "job.py", CORE + "job_steps.py",
    ),
    _mutant(
        "a TaskManager obeys an older leader", 1, "taskmanager/task_manager.py",
        "if envelope.term < self._outbox.term:",
        "if False:",
        "tests/taskmanager/test_task_manager.py",
    ),
    _mutant(
        "a slot is given twice", 3, "core/slots.py",
        "                if seat.driver in taken or seat.state is DriverState.ENDING:\n",
        "                if seat.state is DriverState.ENDING:\n",
        CORE + "slots.py",
    ),
    _mutant(
        "a job runs in another application's driver", 3, "core/slots.py",
        "if seat.purpose in (purpose, ANY) and fits(seat):",
        "if fits(seat):",
        CORE + "slots.py",
    ),
    _mutant(
        "an application that fails again and again ends the term of all", 9,
        "jobmanager/linked_application.py",
        " or (damage is None and self._alone()):",
        " or damage is None:",
        "tests/jobmanager/test_many_applications.py",
    ),
    _mutant(
        "what is stored beside a running application is swept", 7, "jobmanager/dispatcher.py",
        "            if self._group and (self.applications or self._submissions):\n",
        "            if False:\n",
        "tests/jobmanager/test_many_applications.py",
    ),
    _mutant(
        "the end of an application removes the code of others", 5, "process/code.py",
        "    if kept:\n        for laid_out",
        "    if False:\n        for laid_out",
        "tests/jobmanager/test_many_applications.py",
    ),
    _mutant(
        "attempts of an application that cannot be read are stopped", 9,
        "jobmanager/resource_manager.py",
        " and one.application_id not in self._parked",
        "",
        "tests/jobmanager/test_resource_manager.py",
    ),
    _mutant(
        "restarts have no bound", 8, "core/restart.py",
        "    if used >= strategy.attempts:\n",
        "    if False:\n",
        CORE + "restart.py",
    ),
    _mutant(
        "equal names are one job", 2, "core/matching.py",
        "counts = {**state.counts, name: occurrence + 1}",
        "counts = {**state.counts, name: 0}",
        CORE + "matching.py",
    ),
    _mutant(
        "NaN is a value", 9, "core/values.py",
        "if not math.isfinite(value):",
        "if False:",
        CORE + "values.py",
    ),
    # --- cleaning up
    _mutant(
        "staged outcomes stay", 5, CLEANUP,
        "for path in dict.fromkeys((*staged, result.source.path)):",
        "for path in (result.source.path,):",
        "tests/jobmanager/test_cleanup.py", "tests/jobmanager/test_cleanup_tasks.py",
    ),
    _mutant(
        "job documents stay", 5, CLEANUP,
        "await self._plans.delete_documents(self._term, self._stored.body.segments)",
        "self._plans.entries.clear()",
        "tests/jobmanager/test_cleanup.py", "tests/jobmanager/test_cleanup_tasks.py",
    ),
    _mutant(
        "all leaders write one tombstone's file", 1, "ha/layout.py",
        "tombstones/{run_id}~{term}.json",
        "tombstones/{run_id}~1.json",
        "tests/jobmanager/test_late_leader.py",
    ),
    _mutant(
        "the file of a later leader's tombstone is swept", 1, "jobmanager/retention.py",
        "if by > term or run in unknown:",
        "if run in unknown:",
        "tests/api/test_retention.py",
    ),
    _mutant(
        "the file to which an application points is swept", 2, "jobmanager/retention.py",
        "    named |= {",
        "    _ = {",
        "tests/api/test_retention.py",
    ),
    _mutant(
        "cleanup is tried without bound", 8, "jobmanager/effort.py",
        "if failures > self.attempts:",
        "if False:",
        "tests/jobmanager/test_cleanup.py", "tests/jobmanager/test_cleanup_tasks.py",
    ),
    _mutant(
        "an abandoned cleanup removes the only copy of a result", 7, CLEANUP,
        "if published or path != result.source.path:",
        "if True:",
        "tests/jobmanager/test_cleanup_abandoned.py",
    ),
    _mutant(
        "results go though no tombstone could be written", 7, CLEANUP,
        "return self._keep or (written is not None and not written.digest)",
        "return self._keep",
        "tests/jobmanager/test_cleanup_abandoned.py",
    ),
    _mutant(
        "what fails is left behind though nobody said so", 8, "jobmanager/effort.py",
        "            if not self._leave:\n                raise\n",
        "",
        "tests/jobmanager/test_cleanup_tasks.py", "tests/jobmanager/test_cleanup_abandoned.py",
    ),
    *REDEPLOYMENT,
    *CHECKPOINTS,
    *SAFE_WRITES,
    *SAFETY,
    *STORAGE,
    *ARTIFACTS,
    *SESSIONS,
    *SUBMISSIONS,
    *CRASHES,
    *ZOOKEEPER,
    *KUBERNETES,
    *PODS,
)  # fmt: skip
