"""The filesystem register with processes that race, are stopped or are killed."""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import random
import signal
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Thread
from typing import Any, TypeVar

import pytest

from tests.contract.actors import DONE, REFUSED, increment_once
from tests.contract.conftest import PATIENCE_S
from tests.support import system_calls
from tests.support.system_calls import Moment
from tests.support.zygote import Zygote
from understudy.errors import CorruptDataError, UnreadableDataError
from understudy.ha.backends import filesystem
from understudy.ha.backends.filesystem import FilesystemRegister
from understudy.ha.register import Conflict, Entry

T = TypeVar("T")

SWAP = "tests.contract.actors:swap"
SWAP_AND_STOP = "tests.contract.actors:swap_and_stop"
INCREMENT = "tests.contract.actors:increment"

OLD, NEW, LATER = b"old" * 1000, "new" * 2000, b"later" * 500

needs_strace = pytest.mark.skipif(bool(system_calls.why_not()), reason=system_calls.why_not())


def run(work: Coroutine[Any, Any, T]) -> T:
    async def patiently() -> T:
        async with asyncio.timeout(PATIENCE_S):
            return await work

    return asyncio.run(patiently())


class Scene:
    """A register's directory with one key, new for every crash."""

    def __init__(self, root: Path) -> None:
        self._numbers = iter(range(10_000))
        self._root = root
        self.directory = root / "register"

    def new(self, verb: str) -> tuple[str | None, str | None]:
        """Create a new directory; return value and expected version for the next swap."""
        self.directory = self._root / str(next(self._numbers))
        if verb == "create":
            return NEW, None
        version = run(self.register.swap("leader", OLD, None))
        return (NEW if verb == "replace" else None), version

    @property
    def register(self) -> FilesystemRegister:
        """Open the register, as another process would."""
        return FilesystemRegister(self.directory)

    def value(self) -> bytes | None:
        """Return the value that a reader sees."""
        entry = run(self.register.load("leader"))
        return entry.value if entry else None

    def files(self) -> list[str]:
        """Return the names of all files and directories of the register."""
        return [path.name for path in self.directory.rglob("*")]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


BEFORE_AND_AFTER = {
    "create": (None, NEW.encode()),
    "replace": (OLD, NEW.encode()),
    "delete": (OLD, None),
}


def killed_everywhere(
    verb: str, scene: Scene, processes: Zygote, log: Path, fault: str
) -> Iterator[tuple[Moment, int]]:
    """Repeat a swap, with the fault at each writing system call in turn."""
    value, expected = scene.new(verb)
    child = processes.fork(SWAP, str(scene.directory), "leader", value, expected, gate=True)
    for moment in system_calls.moments(child, log):
        value, expected = scene.new(verb)
        child = processes.fork(SWAP, str(scene.directory), "leader", value, expected, gate=True)
        with system_calls.traced(child, log, f"{moment.name}:{fault}:when={moment.number}"):
            child.go()
            yield moment, child.wait()


@needs_strace
@pytest.mark.parametrize("verb", BEFORE_AND_AFTER)
def test_a_kill_at_any_system_call_leaves_the_old_value_or_the_new(
    verb: str, scene: Scene, processes: Zygote, tmp_path: Path
) -> None:
    before, after = BEFORE_AND_AFTER[verb]
    seen = []
    for moment, code in killed_everywhere(verb, scene, processes, tmp_path / "log", "signal=KILL"):
        value = scene.value()
        seen.append(value)

        assert -signal.SIGKILL == code, moment
        assert value in {before, after}, moment
        assert (["leader"] if value is not None else []) == run(scene.register.keys("")), moment

    assert {before, after} == set(seen)
    assert before == seen[0]


@needs_strace
@pytest.mark.parametrize("verb", BEFORE_AND_AFTER)
def test_a_kill_at_any_system_call_blocks_nobody(
    verb: str, scene: Scene, processes: Zygote, tmp_path: Path
) -> None:
    async def live_on(register: FilesystemRegister) -> None:
        entry = await register.load("leader")
        version = await register.swap("leader", LATER, entry.version if entry else None)
        assert Entry(LATER, version) == await register.load("leader")
        await register.swap("leader", None, version)
        version = await register.swap("leader", LATER, None)
        assert Entry(LATER, version) == await register.load("leader")

    for _ in killed_everywhere(verb, scene, processes, tmp_path / "log", "signal=KILL"):
        run(live_on(scene.register))


@pytest.mark.parametrize("verb", BEFORE_AND_AFTER)
@pytest.mark.parametrize("rival", ["reads", "replaces", "deletes", "deletes and creates"])
def test_a_writer_stopped_at_any_moment_blocks_nobody_and_lands_once_or_not_at_all(
    verb: str, rival: str, scene: Scene, processes: Zygote
) -> None:
    """The rival acts while the writer is stopped; then the writer continues."""
    outcomes = set()
    for moment in itertools.count(1):
        value, expected = scene.new(verb)
        before = scene.value()
        child = processes.fork(
            SWAP_AND_STOP, str(scene.directory), "leader", value, expected, moment
        )
        if not child.stopped():
            break  # The swap makes fewer calls.
        found, left = run(act(scene.register, rival))
        child.signal(signal.SIGCONT)
        code = child.wait()
        final = scene.value()
        outcomes.add(code)

        if code == REFUSED:
            assert left == final, moment
            assert before == found, moment
        else:
            assert DONE == code, moment
            landed = value.encode() if value else None
            # The write came before the rival's or after it, never over the rival's value.
            assert landed == found or (found == left and landed == final), moment
            assert final == (left if landed == found else landed), moment

    assert ({DONE} if rival == "reads" else {DONE, REFUSED}) == outcomes


async def act(register: FilesystemRegister, rival: str) -> tuple[bytes | None, bytes | None]:
    """Act as a rival; return the value found and the value left."""
    entry = await register.load("leader")
    found = entry.value if entry else None
    if rival == "reads":
        return found, found
    if rival == "replaces" or entry is None:
        await register.swap("leader", LATER, entry.version if entry else None)
        return found, LATER
    await register.swap("leader", None, entry.version)
    if rival == "deletes":
        return found, None
    await register.swap("leader", LATER, None)
    return found, LATER


def test_writers_stopped_at_random_moments_block_nobody_and_lose_nothing(
    scene: Scene, processes: Zygote
) -> None:
    chance = random.Random(20260101)
    directory = str(scene.directory)
    writers = [processes.fork(INCREMENT, directory, "counter", 150) for _ in range(2)]
    mine = 0
    while not all(writer.ended() for writer in writers):
        writer = chance.choice(writers)
        writer.ended(chance.uniform(0, 0.01))  # The writer runs for a random time.
        writer.signal(signal.SIGSTOP)
        run(increment_once(scene.register, "counter"))
        mine += 1
        writer.signal(signal.SIGCONT)

    assert [DONE, DONE] == [writer.wait() for writer in writers]
    assert 300 + mine == int(run(loaded(scene.register, "counter")).value)


def test_racing_increments_of_processes_lose_nothing(scene: Scene, processes: Zygote) -> None:
    directory = str(scene.directory)
    writers = [processes.fork(INCREMENT, directory, "counter", 50) for _ in range(4)]

    assert [DONE] * 4 == [writer.wait() for writer in writers]
    assert 200 == int(run(loaded(scene.register, "counter")).value)


def test_racing_increments_of_threads_lose_nothing(scene: Scene) -> None:
    def work() -> None:
        async def main() -> None:
            for _ in range(10):
                await increment_once(scene.register, "counter")

        asyncio.run(main())

    threads = [Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert 40 == int(run(loaded(scene.register, "counter")).value)


def test_writers_killed_at_random_moments_lose_nothing_that_was_read(
    scene: Scene, processes: Zygote
) -> None:
    chance = random.Random(20260102)
    directory, last = str(scene.directory), 0
    run(increment_once(scene.register, "counter"))
    for _ in range(15):
        writer = processes.fork(INCREMENT, directory, "counter", 1_000_000)
        writer.ended(chance.uniform(0, 0.02))
        writer.signal(signal.SIGKILL)
        writer.wait()
        number = int(run(loaded(scene.register, "counter")).value)

        assert last <= number

        last = number


@needs_strace
@pytest.mark.parametrize(
    ("verb", "order"),
    [
        # The value, the token, their names; the one rename; then the key's name.
        ("create", ["mkdir", "write", "fsync", "fsync", "fsync", "rename", "fsync"]),
        # The value; the one rename, durable before the old value is removed.
        ("replace", ["write", "fsync", "rename", "fsync", "unlink"]),
        # The one rename, durable before any file of the key is removed.
        ("delete", ["rename", "fsync", "unlink", "unlink", "rmdir"]),
    ],
)
def test_what_a_write_relies_on_is_durable_first(
    verb: str, order: list[str], scene: Scene, processes: Zygote, tmp_path: Path
) -> None:
    value, expected = scene.new(verb)
    scene.directory.mkdir(exist_ok=True)
    child = processes.fork(SWAP, str(scene.directory), "leader", value, expected, gate=True)
    names = [moment.name for moment in system_calls.moments(child, tmp_path / "log")]

    assert order == [name for name in names if name != "openat"]


@needs_strace
def test_the_directories_of_a_new_register_are_durable(
    scene: Scene, processes: Zygote, tmp_path: Path
) -> None:
    directory = scene.directory / "cluster" / "register"
    child = processes.fork(SWAP, str(directory), "leader", "value", None, gate=True)
    names = [moment.name for moment in system_calls.moments(child, tmp_path / "log")]
    made = [name for name in names if name in {"mkdir", "fsync"}][:6]

    assert ["mkdir", "fsync"] * 3 == made


@needs_strace
@pytest.mark.parametrize("name", ["openat", "write", "fsync", "rename"])
@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
def test_a_failing_system_call_leaves_the_old_value_or_the_new(
    name: str, error: str, scene: Scene, processes: Zygote, tmp_path: Path
) -> None:
    for verb, (before, after) in BEFORE_AND_AFTER.items():
        for moment, code in killed_everywhere(
            verb, scene, processes, tmp_path / "log", f"error={error}"
        ):
            if moment.name != name:
                continue
            value = scene.value()

            assert value in {before, after}, (verb, moment)
            assert value == after or code != DONE, (verb, moment)


async def loaded(register: FilesystemRegister, key: str) -> Entry:
    entry = await register.load(key)
    assert entry is not None
    return entry


def killed_often(
    verb: str, name: str, scene: Scene, processes: Zygote, log: Path, count: int
) -> None:
    """Kill ``count`` writers of one register at the same system call."""
    version: str | None = None
    if verb != "create":
        version = run(scene.register.swap("leader", OLD, None))
    for _ in range(count):
        value = None if verb == "delete" else NEW
        child = processes.fork(SWAP, str(scene.directory), "leader", value, version, gate=True)
        with system_calls.traced(child, log, f"{name}:signal=KILL:when=1"):
            child.go()
            assert -signal.SIGKILL == child.wait()


@needs_strace
@pytest.mark.parametrize(("verb", "name"), [("replace", "rename"), ("create", "rename")])
def test_what_killed_writers_leave_behind_does_not_grow_without_bound(
    verb: str, name: str, scene: Scene, processes: Zygote, tmp_path: Path
) -> None:
    killed_often(verb, name, scene, processes, tmp_path / "log", 8)
    for draft in scene.directory.glob(".draft.*"):
        os.utime(draft, (0, 0))

    async def live_on() -> None:
        for number in range(3):
            entry = await scene.register.load("leader")
            value = b"%d" % number
            await scene.register.swap("leader", value, entry.version if entry else None)

    run(live_on())

    assert 3 == len(scene.files()), "the key's directory, its token, its value"


@needs_strace
def test_a_killed_delete_leaves_nothing_once_somebody_else_has_looked(
    scene: Scene, processes: Zygote, tmp_path: Path
) -> None:
    """Keys with a nonce are never created again: no later write would clear them."""
    killed_often("delete", "unlink", scene, processes, tmp_path / "log", 1)

    assert [] == run(scene.register.keys(""))
    assert [] == scene.files()


def test_a_register_is_used_while_all_threads_that_others_share_wait(scene: Scene) -> None:
    """Otherwise no lease is renewed while savepoints are copied."""
    gate = Event()

    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        waiting = asyncio.ensure_future(asyncio.to_thread(gate.wait))
        await asyncio.sleep(0)
        await scene.register.swap("leader", OLD, None)
        gate.set()
        await waiting

    try:
        run(main())
    finally:
        gate.set()

    assert OLD == scene.value()


def test_without_inotify_a_reader_polls(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise OSError(errno.EMFILE, "no inotify instance is left")

    monkeypatch.setattr(filesystem, "Inotify", refuse)
    monkeypatch.setattr(filesystem, "POLL_S", 0.001)

    async def main() -> None:
        seen: list[bytes | None] = []
        async for _ in scene.register.changes("leader"):
            entry = await scene.register.load("leader")
            if not seen:
                await scene.register.swap("leader", b"value", None)
            seen.append(entry.value if entry else None)
            if seen[-1] == b"value":
                break

        assert None is seen[0]

    run(main())


def test_a_directory_that_cannot_be_read_is_an_error_and_not_an_absent_key(scene: Scene) -> None:
    scene.new("replace")
    key = next(path for path in scene.directory.iterdir())
    for path in key.iterdir():
        path.unlink()
    key.rmdir()
    key.write_text("not a directory")

    with pytest.raises(UnreadableDataError, match=r"register entry leader: .*no directory"):
        run(scene.register.load("leader"))


def test_a_foreign_file_is_no_key_and_hides_none(scene: Scene) -> None:
    scene.new("replace")
    (scene.directory / "foreign").write_text("of somebody else")

    assert ["leader"] == run(scene.register.keys(""))
    assert (scene.directory / "foreign").exists()


def test_a_writer_that_was_refused_leaves_nothing_behind(scene: Scene) -> None:
    value, version = scene.new("replace")
    assert value is not None
    run(scene.register.swap("leader", LATER, version))
    for expected in (version, None):
        with pytest.raises(Conflict):
            run(scene.register.swap("leader", value.encode(), expected))

    assert 3 == len(scene.files()), "the key's directory, its token, its value"


def test_a_lost_value_is_an_error_and_not_an_absent_key(scene: Scene) -> None:
    scene.new("replace")
    next(scene.directory.rglob("val.*")).unlink()

    with pytest.raises(CorruptDataError, match=r"register entry leader: .*is gone"):
        run(scene.register.load("leader"))
