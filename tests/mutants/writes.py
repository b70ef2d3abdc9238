"""Mutants of safe writes: rows that are there twice, or half, or are lost."""

from __future__ import annotations

from tests.mutants.mutant import mutant

PUBLISHING = "process/publishing.py"
WRITES = "driver/safe_writes.py"

ON_FAULTS = "tests/process/test_publishing.py"
ON_KILLS = f"{ON_FAULTS}::test_whoever_is_killed_at_whatever_call_each_row_is_there_once"
ON_TWO_KILLS = f"{ON_FAULTS}::test_whoever_is_killed_twice_each_row_is_there_once"
ON_OTHERS_ADD = f"{ON_FAULTS}::test_what_another_adds_at_whatever_call_is_there_once"
ON_OTHERS_APPEND = f"{ON_FAULTS}::test_what_another_job_appends_at_whatever_call_is_there_once"
ON_WRITES = "tests/driver/test_safe_writes.py"

SAFE_WRITES = (
    mutant(
        "what was swapped in is swapped in again",
        8,
        PUBLISHING,
        "        return bool(self._swaps())\n",
        "        return False\n",
        ON_WRITES,
    ),
    mutant(
        "a token of another write passes for one's own",
        8,
        PUBLISHING,
        'return f"{MARK}{job}-{write}-{name}"',
        "return MARK",
        ON_OTHERS_APPEND,
    ),
    mutant(
        "what others add meanwhile is lost",
        8,
        PUBLISHING,
        "if linked.files.get(path) != inode",
        "if False",
        ON_OTHERS_ADD,
    ),
    mutant(
        "what others remove meanwhile comes back",
        8,
        PUBLISHING,
        "removed = frozenset() if only_new else",
        "removed = frozenset() if True else",
        ON_OTHERS_ADD,
    ),
    mutant(
        "an unfinished build passes for swapped in",
        8,
        PUBLISHING,
        '        self._disk.remove(self.path / f"{name}.json")\n'
        "        self._disk.remove_tree(self.path / name)",
        "        self._disk.remove_tree(self.path / name)\n"
        '        self._disk.remove(self.path / f"{name}.json")',
        ON_TWO_KILLS,
    ),
    mutant(
        "a zombie keeps its area",
        1,
        PUBLISHING,
        "                self._disk.rename(path, self.path)\n                return True",
        "                return path.exists() and not __import__('shutil').copytree("
        "path, self.path, symlinks=True) is None",
        ON_TWO_KILLS,
    ),
    mutant(
        "a published write is not passed over",
        2,
        WRITES,
        "if known and note_of(known).state is WriteState.PUBLISHED:\n            return\n"
        "        taken",
        "if known and note_of(known).state is WriteState.DONE:\n            return\n        taken",
        ON_KILLS,
    ),
    mutant(
        "a loop forgets at which step it goes on",
        8,
        WRITES,
        "step = 0 if batch else self._state.step",
        "step = 0",
        ON_WRITES,
    ),
    mutant(
        "a batch that is done is run again",
        2,
        WRITES,
        "if done and number == done.batch_id:\n            return None",
        "if done and number == done.batch_id + 1000:\n            return None",
        ON_WRITES,
    ),
    mutant(
        "torn rows are published",
        8,
        PUBLISHING,
        "return digest(data) == manifest and sizes == self._sizes()",
        "return digest(data) == manifest",
        ON_WRITES,
    ),
    mutant(
        "what a sweep may not touch is swept",
        8,
        WRITES,
        'if path.name.rpartition("-")[2] not in needed:',
        "if True:",
        ON_KILLS,
    ),
)
