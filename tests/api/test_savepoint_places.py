"""Where savepoints may be written to and removed from over REST."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.memory_storage import MemoryStorage
from understudy.api.savepoint_places import SavepointPlaces
from understudy.config import Configuration
from understudy.errors import ConfigurationError, UsageError
from understudy.ha import permits
from understudy.ha.storage import InlineStorage

DIR = "execution.checkpointing.savepoint-dir"
ALLOWED = "execution.checkpointing.savepoint-allowed-dirs"
CHECKPOINTS = "execution.checkpointing.dir"
Refuse = Callable[[str, Configuration], None]


def refuse_target(path: str, configuration: Configuration) -> None:
    SavepointPlaces.of(configuration).refuse_target(path)


def refuse_disposal(path: str, configuration: Configuration) -> None:
    SavepointPlaces.of(configuration).refuse_disposal(path)


BOTH = pytest.mark.parametrize("refuse", [refuse_target, refuse_disposal])
TRIGGER = "0123456789abcdef" * 2


@BOTH
@pytest.mark.parametrize("key", [DIR, ALLOWED])
def test_what_lies_below_a_configured_directory_is_taken(
    tmp_path: Path, key: str, refuse: Refuse
) -> None:
    configuration = Configuration({key: str(tmp_path / "kept")})
    refuse(f"{tmp_path}/kept/savepoint-1", configuration)
    refuse(f"file://{tmp_path}/kept/savepoint-1", configuration)
    refuse("s3://b/kept/savepoint-1", Configuration({key: "s3://b/kept/"}))


def test_each_of_several_directories_counts(tmp_path: Path) -> None:
    configuration = Configuration({ALLOWED: f"{tmp_path}/one,s3://b/two", DIR: f"{tmp_path}/three"})
    for path in (f"{tmp_path}/one", "s3://b/two/x", f"{tmp_path}/three"):
        refuse_target(path, configuration)


def test_a_savepoint_that_was_made_of_a_retained_checkpoint_may_be_removed(tmp_path: Path) -> None:
    configuration = Configuration({CHECKPOINTS: str(tmp_path)})
    refuse_disposal(f"{tmp_path}/job/savepoint-5", configuration)
    with pytest.raises(UsageError, match=ALLOWED):
        refuse_target(f"{tmp_path}/job", configuration)


@BOTH
@pytest.mark.parametrize(
    "path",
    ["{}/other/s", "{}/kept-2/s", "{}/link/s", "{}/kept/out/s", "s3://b/s", "s3://{}/kept/s"],
)
@pytest.mark.parametrize("chosen", [True, False])
def test_nothing_else_is(tmp_path: Path, path: str, chosen: bool, refuse: Refuse) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "other")
    (tmp_path / "kept/out").symlink_to(tmp_path / "other")
    configuration = Configuration({ALLOWED: str(tmp_path / "kept")} if chosen else {})
    with pytest.raises(UsageError, match=f"(below none|no directory is configured).*{ALLOWED}"):
        refuse(path.format(tmp_path), configuration)


@BOTH
@pytest.mark.parametrize(
    "path",
    [
        "s3://bucket/kept-2/s",
        "s3://other/kept/s",
        "s3a://bucket/kept/s",
        "S3A://bucket/kept/s",
        "s3://key:secret@bucket/kept/s",
        "/bucket/kept/s",
        "simplecache::s3://bucket/kept/s",
        "s3://bucket/kept/s::file:///etc",
        "s3://bucket/kept/../other",
        "s3://bucket/kept/%2e%2e/other",
        "s3://bucket/kept/..%2fother",
        "kept/s",
        "s3:/bucket/kept/s",
    ],
)
def test_scheme_bucket_and_path_of_a_url_must_match(path: str, refuse: Refuse) -> None:
    with pytest.raises(UsageError):
        refuse(path, Configuration({ALLOWED: "s3://bucket/kept"}))


@BOTH
def test_a_detour_is_refused_wherever_it_ends(tmp_path: Path, refuse: Refuse) -> None:
    with pytest.raises(UsageError, match=r"without '\.\.'"):
        refuse(f"{tmp_path}/other/../kept/s", Configuration({ALLOWED: f"{tmp_path}/kept"}))


def test_a_directory_itself_is_no_savepoint(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="below none"):
        refuse_disposal(f"{tmp_path}/kept/", Configuration({ALLOWED: f"{tmp_path}/kept"}))


@pytest.mark.parametrize("text", ["kept", "s3://b/../c", "dir::s3://b"])
def test_an_allowed_directory_has_one_meaning(text: str) -> None:
    with pytest.raises(ConfigurationError, match=ALLOWED):
        Configuration({ALLOWED: text})


def test_a_permit_is_for_one_request_and_one_directory() -> None:
    memory = MemoryStorage()
    storage = InlineStorage(memory, 5.0)

    async def story() -> list[bool]:
        await permits.grant(storage, "c", TRIGGER, "/kept")
        asked = [
            await permits.is_granted(storage, "c", trigger, directory)
            for trigger, directory in ((TRIGGER, "/kept"), (TRIGGER, "/etc"), ("f" * 32, "/kept"))
        ]
        await permits.withdraw(storage, "c", TRIGGER)
        return [*asked, await permits.is_granted(storage, "c", TRIGGER, "/kept")]

    assert [True, False, False, False] == asyncio.run(story())
    assert [] == memory.everything()
