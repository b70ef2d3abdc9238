"""Mutants of checkpoints: what is recorded, who is heard, what a restarted job is given."""

from __future__ import annotations

from tests.mutants.mutant import mutant

DECIDED = "core/checkpoints.py"
STORE = "ha/checkpoint_store.py"
COORDINATOR = "jobmanager/checkpoint_coordinator.py"
TASKMANAGER = "taskmanager/task_manager.py"
REGISTRY = "ha/registry.py"

ON_CORE = "tests/core/test_checkpoints.py"
ON_STORE = "tests/ha/test_checkpoint_store.py"
ON_COORDINATOR = "tests/jobmanager/test_checkpoint_coordinator.py"
ON_TASKMANAGER = "tests/taskmanager/test_task_manager.py"
ON_NEW_LEADER = "tests/taskmanager/test_new_leader.py"

CHECKPOINTS = (
    mutant(
        "a job that saves the same again is restarted for ever", 8, DECIDED,
        "        and before.get(slot(one)) != (one.batch_id, one.digest)\n",
        "",
        ON_CORE,
    ),
    mutant(
        "losses of a job that gets further add up", 8, "core/restart.py",
        "losses = 0 if advanced or ran_s",
        "losses = 0 if ran_s",
        "tests/core/test_restart.py", "tests/core/test_job.py",
    ),
    mutant(
        "an attempt that is dead is heard", 3, COORDINATOR,
        "if message.attempt == self._attempt:",
        "if message.attempt <= self._attempt:",
        ON_COORDINATOR,
    ),
    mutant(
        "a number is given twice", 7, DECIDED,
        "            counter += 1\n            found = replace(one, number=counter)",
        "            counter += 1\n            found = replace(one, number=len(known) + 1)",
        ON_CORE, ON_STORE,
    ),
    mutant(
        "the latest of a query is not retained", 7, DECIDED,
        "if one.number in needed | newest",
        "if one.number in newest",
        ON_CORE, ON_COORDINATOR,
    ),
    mutant(
        "a job is given the first of a query", 7, DECIDED,
        "        found[slot(one)] = one\n",
        "        found.setdefault(slot(one), one)\n",
        ON_COORDINATOR,
    ),
    mutant(
        "what is told again is taken for new", 7, DECIDED,
        "if (one.attempt, one.sequence) <= body.heard:",
        "if False:",
        ON_COORDINATOR,
    ),
    mutant(
        "only what one leader has heard is known to be old", 7, DECIDED,
        "heard=(one.attempt, one.sequence))",
        "heard=(0, 0))",
        ON_COORDINATOR,
    ),
    mutant(
        "checkpoints are not told to the next leader", 7, TASKMANAGER,
        "                    self._outbox.repeat()\n",
        "",
        ON_TASKMANAGER,
    ),
    mutant(
        "a savepoint does not wait for what was received before", 7,
        "jobmanager/savepoint_coordinator.py",
        "        await self._checkpoints.drain()",
        "        pass",
        "tests/jobmanager/test_savepoint_coordinator.py",
    ),
    mutant(
        "what comes while a coordinator ends is left in its inbox", 7, COORDINATOR,
        "while not (ends and self._inbox.empty()):",
        "while not ends:",
        ON_COORDINATOR,
    ),
    mutant(
        "ends overtake the checkpoints before them", 7, "taskmanager/outbox.py",
        "        for taken in list(self._taken.values()):\n",
        "        for ended in self.ended.values():\n            self.send(ended)\n"
        "        for taken in list(self._taken.values()):\n",
        ON_NEW_LEADER,
    ),
    mutant(
        "an end that no leader has recorded is not repeated", 5, "taskmanager/outbox.py",
        "for ended in list(self.ended.values()):",
        "for ended in []:",
        ON_NEW_LEADER,
    ),
    mutant(
        "what was answered is told again for ever", 5, "taskmanager/outbox.py",
        "self._taken.get((answer.job_id, answer.attempt), {}).pop(answer.sequence, None)",
        "pass",
        ON_TASKMANAGER,
    ),
    mutant(
        "a document is read and not claimed", 1, STORE,
        "self.body = await document.claim(term)",
        "self.body = await document.read() or self.body",
        ON_STORE,
    ),
    mutant(
        "a document is not linked", 8, STORE,
        "replace(entry, checkpoints=document.key)",
        "entry",
        ON_STORE,
    ),
    mutant(
        "what nothing links is not swept", 5, REGISTRY,
        "return swept + await self.delete_unlinked(term, listed.checkpoints, checkpoints)",
        "return swept",
        ON_STORE,
    ),
    mutant(
        "checkpoints are swept while their jobs cannot be read", 9, REGISTRY,
        "        except (DataError, NotFoundError):\n            return swept",
        "        except (DataError, NotFoundError):\n            jobs = []",
        ON_STORE,
    ),
    mutant(
        "a result does not wait for what was told before it", 7, COORDINATOR,
        "        await self._over.wait()\n",
        "        self._over.set()\n",
        ON_COORDINATOR,
    ),
    mutant(
        "a document that cannot be read counts as none", 9, COORDINATOR,
        "                if self._unneeded.is_set():\n                    return False",
        "                if True:\n                    return False",
        ON_COORDINATOR,
    ),
    mutant(
        "a cancelled job waits for a repair", 9, COORDINATOR,
        "        self._unneeded.set()\n",
        "",
        ON_COORDINATOR,
    ),
    mutant(
        "each repetition is a write", 8, COORDINATOR,
        "while news and not await self._update(",
        "while not await self._update(",
        ON_COORDINATOR,
    ),
)  # fmt: skip
