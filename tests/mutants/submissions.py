"""Mutants of submissions over REST, of shutdowns, and of Python environments; see `catalogue`."""

from __future__ import annotations

from tests.mutants.mutant import mutant

DISPATCHER, RUNS, REQUESTS = (
    "jobmanager/dispatcher.py",
    "api/rest_runs.py",
    "jobmanager/job_requests.py",
)
SHUTDOWN, REST_CLUSTER = "ha/registry.py", "api/rest_cluster.py"
ENVIRONMENTS, STORE, LINES = (
    "process/environments.py",
    "process/environment_store.py",
    "process/requirement_lines.py",
)
ON_RUNS, ON_ENVIRONMENTS = (
    "tests/api/test_runs.py::test_",
    "tests/process/test_environments.py::test_",
)
ON_CLUSTER = "tests/api/test_many_applications.py::test_"
ON_FIRST_INTENT = "tests/jobmanager/test_first_intent.py::test_"
ON_SHUTDOWN = "tests/jobmanager/test_shutdown.py"
ON_LINES = "tests/process/test_requirements.py"

SUBMISSIONS = (
    mutant(
        "a repeated request with other content is taken", 2, DISPATCHER,
        "    if before != request:\n",
        "    if False:\n",
        ON_RUNS + "another_request_under_the_id_of_an_unfinished_one_is_refused",
    ),
    mutant(
        "the id is minted again on a hand-over", 2, RUNS,
        'known = request.headers.get(own_headers.ID, "")',
        'known = ""',
        ON_RUNS + "what_a_standby_passes_on_twice_is_one_application",
    ),
    mutant(
        "an idempotency key is not heeded", 2, RUNS,
        "known = hashlib.sha256(",
        "hashlib.sha256(",
        ON_RUNS + "the_same_idempotency_key_is_the_same_application",
    ),
    mutant(
        "a second job of /run is accepted", 2, REQUESTS,
        "if first is None or not self._context.record.single_job:",
        "if True:",
        ON_RUNS + "a_second_job_ends_the_application_and_is_the_answer",
    ),
    # --- the first intent
    mutant(
        "the slot is not given back when the write of the first intent fails", 5, REQUESTS,
        "                context.resources.release(entry.job_id)\n",
        "                pass\n",
        ON_FIRST_INTENT + "a_job_that_cannot_be_stored_gives_its_slot_back",
    ),
    mutant(
        "the first attempt is sent before its intent is stored", 3, REQUESTS,
        '            await _write("store a job", lambda: context.plans.add(context.term, entry))\n',
        "            context.plans.entries[entry.job_id] = entry\n"
        "            self._jobs.employ(job.submitted(entry.job_id, placement), entry)\n"
        '            await _write("store a job", lambda: context.plans.add(context.term, entry))\n',
        ON_FIRST_INTENT + "no_attempt_is_sent_before_its_job_is_stored",
    ),
    mutant(
        "a new job takes a slot beside jobs that main has not reached again", 2,
        "jobmanager/application_jobs.py",
        "if begins_with_savepoint or reaching.holds_back_new(self._reaching):",
        "if begins_with_savepoint:",
        ON_FIRST_INTENT + "a_job_that_is_held_back_takes_no_slot",
    ),
    mutant(
        "an attempt that a lost leader had displaced cancels its job", 7, "core/job.py",
        "    given_way = state.recovered and ended.status is JobStatus.CANCELED\n",
        "    given_way = False\n",
        "tests/core/test_job.py::test_an_attempt_that_an_earlier_leader_stopped_for_another_job_"
        "cancels_nothing",
    ),
    # --- the shutdown
    mutant(
        "a shutdown before its start ends a process", 6, SHUTDOWN,
        "            self._at_start = found\n        elif",
        '            self._at_start = ""\n        if',
        ON_SHUTDOWN,
    ),
    mutant(
        "a standby takes over in a cluster that is shut down", 6, DISPATCHER,
        "if self._binding.shutdown.look(registry):",
        "if False:",
        ON_SHUTDOWN,
    ),
    mutant(
        "a mark with an unknown outcome is left to the next failover", 6, DISPATCHER,
        'await persist("mark the shutdown of the cluster", lambda: registry.shut_down(term))',
        "await registry.shut_down(term)",
        ON_SHUTDOWN,
    ),
    mutant(
        "a shutdown is answered before it is durable", 7, REST_CLUSTER,
        "        await self._leading.term.dispatcher.shut_down()\n",
        "",
        ON_CLUSTER + "the_cluster_is_shut_down_once_the_answer_is_out_and_keeps_its_data",
    ),
    # --- environments
    mutant(
        "an environment that is used is removed", 7, STORE,
        "        except BlockingIOError:\n            return False\n",
        "        except BlockingIOError:\n            pass\n",
        ON_ENVIRONMENTS + "what_a_killed_process_has_left_is_swept_once_it_is_old",
    ),
    mutant(
        "what was used lately is swept", 7, STORE,
        "        if unused_s and time.time()",
        "        if False and time.time()",
        ON_ENVIRONMENTS + "what_a_killed_process_has_left_is_swept_once_it_is_old",
    ),
    mutant(
        "a requirement on another version of the cluster's packages is taken", 9, LINES,
        "if requirement.url or not requirement",
        "if requirement.url and not requirement",
        ON_LINES,
    ),
    mutant(
        "a line that names a file of one host is taken", 9, LINES,
        "    elif option.lstrip(\"-\") not in _OPTIONS:",
        "    elif False:",
        ON_LINES,
    ),
)  # fmt: skip
