"""Mutants of what is done about the leftovers of crashes; see `catalogue`."""

from __future__ import annotations

from tests.mutants.mutant import mutant

FAULT = (
    "tests/crash/test_system_calls.py"
    "::test_a_fault_at_any_system_call_leaves_the_old_or_the_new_and_can_be_repeated"
)

CRASHES = (
    mutant(
        "drafts of the dead stay", 5, "ha/drafts.py",
        "if not _is_abandoned(draft):",
        "if True:",
        f"{FAULT}[an application, put-signal=KILL]",
    ),
    mutant(
        "a draft is emptied where its writer finds it", 1, "ha/drafts.py",
        'draft = draft.rename(draft.with_name(f"{draft.name}{_REMOVED}"))',
        "pass",
        "tests/contract/test_drafts.py",
    ),
    mutant(
        "drafts beside tombstones stay", 5, "jobmanager/retention.py",
        "    await services.storage.prune(directory)  # Of what",
        "    # Of what",
        "tests/crash/test_kept_points.py",
    ),
    mutant(
        "the leader's record is removed if the first try succeeds", 5, "ha/election.py",
        'is not released yet: %s", term, str(error) or "timeout")\n                await',
        'is not released yet: %s", term, str(error) or "timeout")\n                return await',
        "tests/crash/test_kept_points.py",
    ),
    mutant(
        "half of a layout stays in its place", 8, "process/code.py",
        "laid_out.rename(draft)",
        "laid_out.exists()",
        f"{FAULT}[layouts, removed-signal=KILL]",
    ),
    mutant(
        "one input/output error is damage", 9, "ha/plain_files.py",
        "IO_TRIES = 3",
        "IO_TRIES = 1",
        f"{FAULT}[an application, buried-error=EIO]",
    ),
)  # fmt: skip
