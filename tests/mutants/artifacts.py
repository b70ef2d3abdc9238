"""Mutants of uploaded artifacts and of who may upload them; see `catalogue`."""

from __future__ import annotations

from tests.mutants.mutant import mutant

STORE, TOKENS, GATE = "ha/artifact_store.py", "api/tokens.py", "api/gate.py"
ON_STORE = "tests/ha/test_artifact_store.py"
ON_TOKENS = "tests/api/test_tokens.py"

ARTIFACTS = (
    mutant(
        "an artifact is removed that an application needs", 7, STORE,
        "if body and body.result is None:",
        "if body and body.result:",
        ON_STORE,
    ),
    mutant(
        "an artifact is removed that a submission needs", 7, STORE,
        "if self._held[artifact_id] > 0:",
        "if False:",
        ON_STORE,
    ),
    mutant(
        "an artifact is swept that a submission needs", 7, STORE,
        "and self._held[key] <= 0",
        "",
        ON_STORE,
    ),
    mutant(
        "an artifact's bytes go with the first that shares them", 7, STORE,
        "for path in {one.path for one in before.artifacts.values()} - left:",
        "for path in {before.artifacts[one].path for one in gone}:",
        ON_STORE,
    ),
    mutant(
        "an artifact that arrives is swept", 7, STORE,
        "if path not in named and path not in self._arriving:",
        "if path not in named:",
        ON_STORE,
    ),
    mutant(
        "an artifact is acknowledged before its bytes are stored", 7, STORE,
        "            await self._storage.publish_file(path, received.file)\n",
        "",
        ON_STORE,
    ),
    mutant(
        "a leader that leads again knows its own artifacts only", 7, STORE,
        "if self._claimed and self._claimed[0] == term:",
        "if self._claimed:",
        ON_STORE,
    ),
    mutant(
        "an artifact's bytes stay where the upload was not acknowledged", 5, STORE,
        "for path in (f\"{self._directory}/{name}\" for name in names):",
        "for path in ():",
        ON_STORE,
    ),
    mutant(
        "an artifact that somebody removed is taken for stored", 7, STORE,
        "if sizes.get(one.path.rpartition(\"/\")[2]) == received.size:",
        "if sizes is not None:",
        ON_STORE,
    ),
    mutant(
        "an artifact is altered unnoticed", 9, STORE,
        "if digest(body) != artifact.digest:",
        "if not body:",
        ON_STORE,
    ),
    mutant(
        "a viewer's token changes things", 1, GATE,
        'elif caller.role is Role.ADMIN or scope["method"] in SAFE:',
        "elif True:",
        ON_TOKENS,
    ),
    mutant(
        "a token that was withdrawn still counts", 1, TOKENS,
        "if seen is not None and seen == self._seen:",
        "if self._seen:",
        ON_TOKENS,
    ),
    mutant(
        "a damaged file of tokens lets people in", 1, TOKENS,
        "        self._known, self._seen = {}, seen\n",
        "        self._seen = seen\n",
        ON_TOKENS,
    ),
)  # fmt: skip
