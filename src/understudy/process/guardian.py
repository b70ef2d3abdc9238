"""The guardian: a tiny program that starts one worker and ensures that its whole tree dies with it.

Run by path as ``python -I -S guardian.py SPEC``. It uses the standard library only and nothing of
this package, so that it is small, starts in milliseconds and does not fail with its worker.

Promises:

- the guardian is the subreaper of all descendants of its worker, in any session or fork;
- when the worker ends or misses its announced deadline, or when the parent is gone or orders it,
  the whole tree is killed and reaped until the kernel reports that no child is left;
- only then does the guardian free its liveness lock, report ``reaped`` to the parent, and exit with
  the worker's status. So a free lock proves that all are dead;
- a tree that uses more memory, or has more processes, than its limits allow is killed, too;
- the guardian never restarts anything.

The worker inherits the lock, and passes it on to its children. So the lock stays taken while any of
them lives, even if this guardian is killed first. Programs that are started with closed files (as
`subprocess` does by default) do not hold the lock, but carry the worker's incarnation in their
environment: where this guardian was killed first, whoever gets the lock looks for them (`strays`).

Messages are JSON, one per line. From the parent: ``{"until": t}``, ``{"stop": grace}``,
``{"kill": why}``. From the worker: ``{"until": t}``, ``{"settle": n}``, ``{"released": true}``,
``{"release": {"argv": […], "input": …}}``: a program that releases the worker's holdings once the
whole tree is dead.
To the parent: ``{"started": pid}``, ``{"until": t}``, ``{"reaped": {…}}``. To the worker:
``{"settled": n}``.
Times are readings of CLOCK_BOOTTIME, which also runs while the machine sleeps.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import select
import shutil
import signal
import socket
import stat
import sys
import time
from typing import Any, NoReturn

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

KILL_POLL_S = 0.05
"""Polling period for forks that escaped a round of kills; each death also ends the wait."""

LOCK_TRIES, LOCK_PAUSE_S = 20, 0.005
"""Tries for the liveness lock, and the increment of the pause between two: a second in total."""

RELEASE_S = 5.0
"""Time limit of the release program; without it the holdings expire by themselves, later."""

SILENT = "silent for too long"

LOOK_S = 1.0
"""Period of looks at what the tree uses, if that is limited: a look at 50 threads takes 1 ms."""

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""What asks a guardian to end; its worker gets SIGTERM for each."""

GUARDIAN_FD = "UNDERSTUDY_GUARDIAN_FD"
LOCK_FDS = "UNDERSTUDY_LOCK_FDS"
GUARDED = "UNDERSTUDY_GUARDED"
"""The incarnations of the guarded processes that a process descends from."""


def now() -> float:
    """Return the time of the clock that guardian and worker share."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def prctl(option: int, value: int) -> None:
    """Call prctl(2), or raise ``OSError``."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


class Lines:
    """A non-blocking socket that carries JSON objects, one per line."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._socket.setblocking(False)
        # The worker's descendants must not keep this socket open once this guardian is dead.
        self._socket.set_inheritable(False)
        self._pending = b""
        self.closed = False

    def fileno(self) -> int:
        """Return the descriptor, for ``select``."""
        return self._socket.fileno()

    def receive(self) -> list[dict[str, Any]]:
        """Return all messages that have arrived; set `closed` if the other side is gone."""
        while True:
            try:
                data = self._socket.recv(65536)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self.closed = True
                break
            self._pending += data
        *lines, self._pending = self._pending.split(b"\n")
        return [json.loads(line) for line in lines if line]

    def send(self, message: dict[str, Any]) -> None:
        """Send a message, unless the other side is gone or its buffer is full."""
        with contextlib.suppress(OSError):
            self._socket.sendall(json.dumps(message).encode() + b"\n")


def descendants() -> list[int]:
    """Return the pids of all descendants of this process, parents before children."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        parent = parent_of(int(name))
        if parent:
            children.setdefault(parent, []).append(int(name))
    found = list(children.get(os.getpid(), ()))
    for pid in found:
        found.extend(children.get(pid, ()))
    return found


def children_of(pid: int) -> list[int]:
    """Return the pids of a process's children; empty if there is no such process."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found.extend(map(int, file.read().split()))
    return found


def tree_of(pid: int, most: int) -> list[int]:
    """Return the pids below a process, but not many more than ``most``.

    Only the tree itself is looked at, where the kernel allows it: a machine may have thousands of
    processes.
    """
    if not os.path.exists(f"/proc/{pid}/task/{pid}/children"):  # noqa: PTH110
        return descendants()
    found = children_of(pid)
    for one in found:
        if len(found) > most:
            break
        found.extend(children_of(one))
    return found


def resident_bytes(pid: int) -> int:
    """Return the memory of a process, with what it shares; 0 if there is no such process."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def own_bytes(pid: int) -> int:
    """Return the memory of a process, with its share of what it shares; slower."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            return next(int(line.split()[1]) for line in file if line.startswith(b"Pss:")) * 1024
    except (OSError, StopIteration):
        return resident_bytes(pid)


def name_of(pid: int) -> str:
    """Return the name of a process's program, as far as it can be printed."""
    try:
        with open(f"/proc/{pid}/comm", "rb") as file:
            name = file.read().decode(errors="replace").strip()
    except OSError:
        return "a process"
    return "".join(one if one.isprintable() else "·" for one in name)


def stat_of(pid: int) -> list[bytes]:
    """Return what the kernel tells of a process, from its state on; empty if there is none.

    Raises ``OSError`` if the kernel cannot tell, which proves no death. The name, in parentheses,
    may hold anything: the fields begin behind its end.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def parent_of(pid: int) -> int:
    """Return the parent's pid; 0 if there is no such process, or the kernel cannot tell."""
    try:
        stat = stat_of(pid)
    except OSError:
        return 0
    return int(stat[1]) if stat else 0


def group_of(pid: int) -> int:
    """Return a process's group; 0 if there is no such process, or the kernel cannot tell."""
    try:
        stat = stat_of(pid)
    except OSError:
        return 0
    return int(stat[2]) if stat else 0


def start_ticks(pid: int) -> int:
    """Return a live process's start, in clock ticks since the boot; 0 if there is no such one.

    Raises ``OSError`` if the kernel cannot tell.
    """
    stat = stat_of(pid)
    return int(stat[19]) if stat and stat[0] not in {b"Z", b"X"} else 0


def kill(pid: int) -> None:
    """Kill a descendant, but never a foreign process that has got its pid meanwhile."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return
    try:
        # The handle refers to the present owner of the pid, which must still be our descendant.
        ancestor = pid
        while ancestor not in {0, 1, os.getpid()}:
            ancestor = parent_of(ancestor)
        if ancestor == os.getpid():
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    except OSError:
        return
    finally:
        os.close(handle)


def identity(pid: int) -> list[int]:
    """Return what is true of one live process only: pid, PID namespace, start; all 0 if dead.

    Raises ``OSError`` if the kernel cannot tell.
    """
    start = start_ticks(pid)
    return [pid, os.stat("/proc/self/ns/pid").st_ino, start] if start else [0, 0, 0]  # noqa: PTH116


def take_lock(path: str) -> int:
    """Create and take a liveness lock; raises ``BlockingIOError`` if another process holds it."""
    for tries in range(LOCK_TRIES):
        time.sleep(tries * LOCK_PAUSE_S)
        if (descriptor := _locked(path)) is not None:
            return descriptor
    raise BlockingIOError(errno.EAGAIN, "the liveness lock cannot be had", path)


def _locked(path: str) -> int | None:
    """Create a lock and take it; None if a sweep for the locks of the dead was faster.

    A sweep holds a lock for a moment and removes it if no process has taken it yet.
    """
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120
        _refuse_directory_of_others(os.path.dirname(path))  # noqa: PTH120
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
    except (FileNotFoundError, FileExistsError):  # A sweep removed the empty directory.
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), os.stat(path)):  # noqa: PTH116
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None


def _refuse_directory_of_others(path: str) -> None:
    """Raise ``PermissionError`` if others could remove or replace the locks in a directory."""
    found = os.lstat(path)
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    if not ours or found.st_mode & 0o022:
        raise PermissionError(
            errno.EPERM, "is not a directory that is ours alone: remove it, or choose another", path
        )


class Guardian:
    """One worker, from its start to the last of its descendants."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec
        self._up = Lines(spec["up"]) if spec.get("up") is not None else None
        self._lock = take_lock(spec["lock"]) if spec.get("lock") else None
        mine, theirs = socket.socketpair()
        self._worker = Lines(mine.detach())
        self._wakeup = self._watch_signals()
        self._parent_until: float | None = None
        self._worker_until: float | None = now() + spec["start_s"] if spec.get("start_s") else None
        self._kill_at: float | None = None
        self._settling: list[int] = []
        self._limits: list[dict[str, Any]] = spec.get("limits", [])
        self._look_at = now() + LOOK_S
        self._exceeded = ""
        """The option whose limit the tree has exceeded."""
        self._released = False
        self._release: dict[str, Any] | None = None
        self._status: int | None = None
        self._pid = self._start(theirs)
        theirs.close()
        with contextlib.suppress(OSError):
            self._write_lock({"worker": identity(self._pid)})

    def run(self) -> int:
        """Wait until the worker ends or must end; kill and reap all; return the exit code."""
        if self._up:
            self._up.send({"started": self._pid})
        reason = self._wait()
        died_at = now()
        if self._up is None and reason != "ended":  # No parent would report it.
            with contextlib.suppress(OSError):
                os.write(2, f"{self._spec['name']} is killed: {reason}\n".encode())
        self._kill_all()
        for message in self._worker.receive():  # The last messages may arrive with the death.
            self._from_worker(message)
        code = self._exit_code()
        note = {
            "code": code,
            "signal": os.WTERMSIG(self._status)
            if self._status is not None and os.WIFSIGNALED(self._status)
            else 0,
            "at": died_at,
            "reason": reason,
            "exceeded": self._exceeded,
        }
        self._free_lock(note)
        self._run_release()
        self._remove_scratch()
        if self._up:
            self._up.send({"reaped": note})
        return code

    def _start(self, theirs: socket.socket) -> int:
        keep = [theirs.fileno(), *self._spec.get("fds", ())]
        locks = [int(fd) for fd in os.environ.get(LOCK_FDS, "").split(",") if fd]
        if self._lock is not None:
            locks.append(self._lock)
        for descriptor in (*keep, *locks):
            os.set_inheritable(descriptor, True)
        environment = {
            **os.environ,
            GUARDIAN_FD: str(theirs.fileno()),
            LOCK_FDS: ",".join(map(str, locks)),
            GUARDED: f"{os.environ.get(GUARDED, '')},{self._spec.get('incarnation', '')}",
        }
        guardian = os.getpid()
        pid = os.fork()
        if pid:
            for descriptor in keep:
                os.set_inheritable(descriptor, False)
            return pid
        try:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if self._limits:  # Whoever forks without end is killed as a group, at one moment.
                os.setpgid(0, 0)
            if os.getppid() == guardian:
                signal.set_wakeup_fd(-1)
                for number in (*SIGNALS, signal.SIGCHLD):
                    signal.signal(number, signal.SIG_DFL)
                os.execvpe(self._spec["argv"][0], self._spec["argv"], environment)  # noqa: S606
        except OSError as error:
            os.write(2, f"{self._spec['argv'][0]}: {error.strerror}\n".encode())
        finally:
            os._exit(127)

    def _free_lock(self, note: dict[str, Any]) -> None:
        """Write a note into the lock file for the next holder, then release the lock."""
        if self._lock is None:
            return
        with contextlib.suppress(OSError):
            self._write_lock(note)
            if self._released:  # No process will need a proof of this death.
                os.unlink(self._spec["lock"])  # noqa: PTH108 -- pathlib costs 5 ms to import
                os.rmdir(os.path.dirname(self._spec["lock"]))  # noqa: PTH106, PTH120
        os.close(self._lock)

    def _write_lock(self, note: dict[str, Any]) -> None:
        if self._lock is not None:
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, json.dumps(note).encode(), 0)

    def _run_release(self) -> None:
        """Run the program that releases the dead worker's holdings, unless it released them."""
        if self._release is None or self._released:
            return
        argv = self._release["argv"]
        reader, writer = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                os.dup2(reader, 0)
                os.closerange(3, 1024)
                os.execv(argv[0], argv)  # noqa: S606
            finally:
                os._exit(127)
        os.close(reader)
        with contextlib.suppress(OSError):
            os.write(writer, self._release["input"].encode())
        os.close(writer)
        until = now() + RELEASE_S
        while not os.waitpid(pid, os.WNOHANG)[0]:
            select.select([self._wakeup], [], [], max(0.0, min(KILL_POLL_S, until - now())))
            with contextlib.suppress(OSError):
                os.read(self._wakeup, 4096)
            if now() >= until:
                os.kill(pid, signal.SIGKILL)

    def _remove_scratch(self) -> None:
        for path in self._spec.get("scratch", ()):
            shutil.rmtree(path, ignore_errors=True)

    def _watch_signals(self) -> int:
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        for number in (*SIGNALS, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        return reader

    def _wait(self) -> str:
        """Return once the worker has ended (``ended``), or must be killed, with the reason."""
        while True:
            ready = self._select()
            if self._wakeup in ready:
                self._handle_signals()
            self._reap()
            if self._status is not None:
                return "ended"
            # The clock is read first: all messages sent before a deadline must be read before the
            # deadline is judged, even if this guardian itself was paused.
            at = now()
            for message in self._worker.receive():
                self._from_worker(message)
            for message in self._up.receive() if self._up else ():
                if "kill" in message:
                    return str(message["kill"])
                self._from_parent(message)
            self._settle()
            if self._up and self._up.closed and self._kill_at is None:
                if not self._spec.get("orphan_grace_s"):
                    return "the parent is gone"
                self._stop(self._spec["orphan_grace_s"])
            if why := self._overdue(at) or self._excess(at):
                return why

    def _select(self) -> list[Any]:
        watched: list[Any] = [self._wakeup]
        if not self._worker.closed:
            watched.append(self._worker)
        if self._up and not self._up.closed:
            watched.append(self._up)
        due = [t for t in (self._worker_until, self._parent_until, self._kill_at) if t is not None]
        if self._limits:
            due.append(self._look_at)
        pauses = [max(0.0, t - now()) for t in due]
        if self._settling:
            pauses.append(KILL_POLL_S)
        return select.select(watched, [], [], min(pauses, default=None))[0]

    def _overdue(self, at: float) -> str:
        if self._kill_at is not None and at >= self._kill_at:
            return "did not stop in time"
        if self._worker_until is not None and at >= self._worker_until:
            return SILENT
        if self._parent_until is not None and at >= self._parent_until:
            return "no leader was heard of for too long"
        return ""

    def _excess(self, at: float) -> str:
        """Return which limit the tree exceeds, and by what; empty if it exceeds none."""
        if not self._limits or at < self._look_at:
            return ""
        most = max(one["most"] for one in self._limits if one["what"] != "memory")
        tree = tree_of(os.getpid(), most)
        for one in self._limits:
            memory = one["what"] == "memory"
            if why := _memory(tree, one["most"]) if memory else _number(tree, one["most"]):
                self._exceeded = one["option"]
                return f"{why} that {one['option']} allows"
        self._look_at = now() + LOOK_S
        return ""

    def _handle_signals(self) -> None:
        numbers = os.read(self._wakeup, 4096)
        if any(number != signal.SIGCHLD for number in numbers):
            self._stop(self._spec.get("stop_grace_s", 10.0))

    def _from_worker(self, message: dict[str, Any]) -> None:
        if "until" in message:
            self._worker_until = message["until"]
            if self._up:  # Lets the parent notice a frozen guardian.
                self._up.send({"until": message["until"]})
        if "settle" in message:
            self._settling.append(message["settle"])
        if "released" in message:
            self._released = bool(message["released"])
        if "release" in message:
            self._release = message["release"]

    def _from_parent(self, message: dict[str, Any]) -> None:
        if "until" in message:
            self._parent_until = message["until"]
        if "stop" in message:
            self._stop(message["stop"])

    def _stop(self, grace_s: float) -> None:
        with contextlib.suppress(OSError):
            os.kill(self._pid, signal.SIGTERM)
            os.kill(self._pid, signal.SIGCONT)
        at = now() + grace_s
        self._kill_at = at if self._kill_at is None else min(at, self._kill_at)

    def _settle(self) -> None:
        """Kill processes that lost their own guardian; answer ``settled`` once none is left."""
        if not self._settling:
            return
        mine = descendants()
        strays = [pid for pid in mine if pid != self._pid and parent_of(pid) == os.getpid()]
        if strays:
            for pid in strays:
                kill(pid)
            return
        for number in self._settling:
            self._worker.send({"settled": number})
        self._settling.clear()

    def _reap(self) -> bool:
        """Reap dead children; return whether any child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._pid:
                self._status = status

    def _kill_all(self) -> None:
        """Kill and reap until the kernel reports that there is no child."""
        while True:
            found = descendants()
            # While one of them is in the worker's group, the group's number is not used again.
            if any(group_of(pid) == self._pid for pid in found):
                with contextlib.suppress(OSError):
                    os.killpg(self._pid, signal.SIGKILL)
            for pid in found:
                kill(pid)
            if not self._reap():
                return
            select.select([self._wakeup], [], [], KILL_POLL_S)
            with contextlib.suppress(OSError):
                os.read(self._wakeup, 4096)

    def _exit_code(self) -> int:
        if self._status is None:
            return 1
        if os.WIFSIGNALED(self._status):
            return 128 + os.WTERMSIG(self._status)
        return os.WEXITSTATUS(self._status)


def _memory(tree: list[int], most: int) -> str:
    """Return how much memory a tree uses if that is more than allowed."""
    if sum(map(resident_bytes, tree)) <= most:
        return ""
    sizes = {pid: own_bytes(pid) for pid in tree}
    used = sum(sizes.values())
    if used <= most:
        return ""
    largest = max(sizes, key=lambda pid: sizes[pid])
    alone = f"process {largest} ({name_of(largest)}) {_in_words(sizes[largest])} of that"
    return f"it used {_in_words(used)} of memory, {alone}, more than the {_in_words(most)}"


def _number(tree: list[int], most: int) -> str:
    """Return how many processes a tree has if they are more than allowed."""
    if len(tree) <= most:
        return ""
    return f"it had {len(tree):,} processes or more, more than the {most:,}"


def _in_words(size: int) -> str:
    return f"{size / (1 << 30):.2f} GB" if size >= 1 << 30 else f"{size / (1 << 20):.0f} MB"


def main() -> NoReturn:
    """Guard the worker that the first argument describes."""
    spec = json.loads(sys.argv[1])
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    try:
        guardian = Guardian(spec)
    except OSError as error:
        if error.errno == errno.EWOULDBLOCK:
            os.write(2, f"{spec['lock']}: another process holds this lock\n".encode())
            sys.exit(75)
        raise
    sys.exit(guardian.run())


if __name__ == "__main__":
    main()
