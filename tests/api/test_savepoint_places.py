"""Which savepoints may be removed over REST."""

from __future__ import annotations

from pathlib import Path

import pytest

from understudy.api.rest_savepoints import refuse_elsewhere
from understudy.config import Configuration
from understudy.errors import UsageError

KEY = "execution.checkpointing.savepoint-dir"


def test_what_lies_below_the_configured_directory_may_be_removed(tmp_path: Path) -> None:
    configuration = Configuration({KEY: str(tmp_path / "kept")})
    refuse_elsewhere(f"{tmp_path}/kept/savepoint-1", configuration)
    refuse_elsewhere(f"file://{tmp_path}/kept/savepoint-1", configuration)
    refuse_elsewhere("s3://b/kept/savepoint-1", Configuration({KEY: "s3://b/kept/"}))


@pytest.mark.parametrize(
    "path", ["{}/other/s", "{}/kept/../other/s", "{}/kept", "{}/kept-2/s", "{}/link/s"]
)
@pytest.mark.parametrize("chosen", [True, False])
def test_nothing_else_may(tmp_path: Path, path: str, chosen: bool) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "other")
    (tmp_path / "kept/out").symlink_to(tmp_path / "other")
    configuration = Configuration({KEY: str(tmp_path / "kept")} if chosen else {})
    with pytest.raises(UsageError, match="below none"):
        refuse_elsewhere(path.format(tmp_path), configuration)
    with pytest.raises(UsageError, match="below none"):
        refuse_elsewhere(f"{tmp_path}/kept/out/s", configuration)
