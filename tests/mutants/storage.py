"""Mutants of the storage on object stores; see `catalogue`."""

from __future__ import annotations

from tests.mutants.mutant import mutant

FILES = "ha/remote_files.py"
ON_S3 = "tests/contract/test_s3.py"
FAULTS = "tests/ha/test_stores_on_s3.py"

STORAGE = (
    mutant(
        "a bucket that was misspelt is made", 1, FILES,
        'self._call("pipe_file", path, data, **parts)\n',
        'self._call("makedirs", path, exist_ok=True)\n'
        '            self._call("pipe_file", path, data, **parts)\n',
        ON_S3,
    ),
    mutant(
        "a bucket that is gone is an empty one", 1, FILES,
        "if _code(error) not in _NO_SUCH_BUCKET:",
        "if True:",
        ON_S3,
    ),
    mutant(
        "listings are kept", 1, FILES,
        "use_listings_cache=False",
        "use_listings_cache=True",
        ON_S3,
    ),
    mutant(
        "a store that fails is taken for an empty one", 1, FILES,
        'self._call("info", path)',
        'return bool(self._call("exists", path))',
        "tests/ha/test_remote_files.py",
    ),
    mutant(
        "a silent store is waited for", 1, FILES,
        "limit_s = limit_s or CALL_S",
        "limit_s = limit_s or 30.0",
        f"{FAULTS}::test_a_server_that_never_answers_holds_nobody_up[read]",
    ),
    mutant(
        "a directory's mark is its child", 1, FILES,
        "name for name in self._entries(path) if name and",
        "name or path for name in self._entries(path) if",
        ON_S3,
    ),
    mutant(
        "a fork uses the connection of its parent", 1, FILES,
        "if os.getpid() != self._pid:",
        "if not self._pid:",
        ON_S3,
    ),
)  # fmt: skip
