"""Mutants of sessions and of who submits to them; see `catalogue`."""

from __future__ import annotations

from tests.mutants.mutant import mutant

REMOTE, SUBMIT = "api/remote.py", "cli/commands/submit.py"
JOINING, STORY = "cli/launch/joining.py", "cli/launch/story.py"
ON_REMOTE, ON_SUBMIT = "tests/api/test_remote.py", "tests/cli/test_submit.py"

SESSIONS = (
    mutant(
        "the lost answer to a submission is taken for the end of another run", 7, SUBMIT,
        "                if self.run_id:  # Otherwise it is ours: the first answer was lost.\n"
        "                    submitted.ended = error.status\n",
        "                submitted.ended = error.status\n",
        ON_SUBMIT,
    ),
    mutant(
        "a client that only knows addresses asks the dead one again and again", 7, REMOTE,
        "self._known = {one: self._known[one] for one in (*others, first)}",
        "pass",
        ON_REMOTE,
    ),
    mutant(
        "a token goes to whatever address is told", 1, REMOTE,
        "fine = {one: who for one, who in found.items() if self._may_be_asked(one)}",
        "fine = found",
        ON_REMOTE,
    ),
    mutant(
        "a stranger at a learned address is believed", 1, REMOTE,
        "if self._known.get(address) and process_name",
        "if False and process_name",
        ON_REMOTE,
    ),
    mutant(
        "nobody is found, and an empty answer of this host is given", 7, REMOTE,
        "        raise UnreachableError(\n",
        "        return {'applications': [], 'leader': None, 'attention': []}\n"
        "        raise UnreachableError(\n",
        ON_REMOTE,
    ),
    mutant(
        "a JobManager of a session joins the cluster of an application", 7, JOINING,
        "        if jobmanager:\n            _refuse_other_kind(",
        "        if False:\n            _refuse_other_kind(",
        "tests/cli/test_session.py",
    ),
    mutant(
        "the end of another application ends the cluster of a run", 7, STORY,
        'case "application-finished" if self._is_own(event):',
        'case "application-finished":',
        "tests/cli/test_story.py",
    ),
)  # fmt: skip
