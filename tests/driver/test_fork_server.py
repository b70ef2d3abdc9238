"""The fork server: processes come from a clean one, and their ends are told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

ENDS_S = 60.0


def script(text: str) -> subprocess.Popen[str]:
    """Start a Python process that has imported nothing but what it needs: it has one thread."""
    head = """
        import logging, os, signal, socket, subprocess, sys, threading, time
        from understudy.process import forks
        from understudy.driver.fork_server import ForkServer
        nothing = lambda: None
    """
    code = textwrap.dedent(head) + textwrap.dedent(text)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


def said(text: str) -> list[str]:
    """Return what a script prints, which must end by itself."""
    process = script(text)
    try:
        output, _ = process.communicate(timeout=ENDS_S)
    finally:
        process.kill()

    assert 0 == process.returncode
    return output.splitlines()


def test_a_process_has_one_thread_and_no_socket_of_its_driver() -> None:
    lines = said(
        """
        ours, theirs = socket.socketpair()
        forks.keep_from_children(ours)
        def run(end):
            kept = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
                    if os.path.exists(f"/proc/self/fd/{fd}")]
            sockets = sorted(one for one in kept if one.startswith("socket:"))
            line = os.readlink(f"/proc/self/fd/{end.fileno()}")
            other = os.readlink(f"/proc/self/fd/{theirs.fileno()}")
            print(len(os.listdir("/proc/self/task")), sockets == sorted([line, other]))
        server = ForkServer.start(run, 5.0)
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
        server.watch(nothing, nothing)
        child = server.fork()
        child.ended.wait()
        print(len(os.listdir(f"/proc/{server.pid}/task")), child.status)
        """
    )

    assert ["1 True", "1 0"] == lines


def test_how_each_process_has_ended_is_told() -> None:
    lines = said(
        """
        def run(end):
            what = end.recv(16)
            if what == b"code":
                os._exit(3)
            if what == b"kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if what == b"raise":
                sys.stderr = open(os.devnull, "w")
                raise ValueError
        server = ForkServer.start(run, 5.0)
        server.watch(nothing, nothing)
        children = [server.fork() for _ in range(4)]
        for child, what in zip(children, (b"code", b"kill", b"raise", b"good")):
            child.line.sendall(what)
            child.ended.wait()
            print(os.waitstatus_to_exitcode(child.status))
        """
    )

    assert ["3", "-9", "1", "0"] == lines


def test_the_line_ends_with_its_process_whoever_else_has_it() -> None:
    lines = said(
        """
        def run(end):
            held = subprocess.Popen(["sleep", "1000"], pass_fds=[end.fileno()])
            end.sendall(b"%d\\n" % held.pid)
        server = ForkServer.start(run, 5.0)
        server.watch(nothing, nothing)
        child = server.fork()
        pid = b""
        while piece := child.line.recv(100):
            pid += piece
        print(child.ended.wait(60), child.status)
        os.kill(int(pid), signal.SIGKILL)
        """
    )

    assert ["True 0"] == lines


def test_no_program_that_a_job_starts_has_its_line() -> None:
    """Not even one that is started without Python's care for descriptors."""
    lines = said(
        """
        def run(end):
            line = os.readlink(f"/proc/self/fd/{end.fileno()}")
            os.system(f"ls -l /proc/self/fd | grep -cF '{line}'")
        server = ForkServer.start(run, 5.0)
        server.watch(nothing, nothing)
        child = server.fork()
        child.ended.wait()
        """
    )

    assert ["0"] == lines


def test_what_threads_of_the_driver_hold_locked_no_process_inherits() -> None:
    lines = said(
        """
        logging.basicConfig(stream=open(os.devnull, "w"))
        def run(end):
            logging.getLogger().error("from a job")
            import wave, colorsys
            threading.Thread(target=nothing).start()
        server = ForkServer.start(run, 5.0)
        server.watch(nothing, nothing)
        def busy():
            while True:
                logging.getLogger().error("busy")
        for _ in range(4):
            threading.Thread(target=busy, daemon=True).start()
        statuses = []
        for _ in range(40):
            child = server.fork()
            child.ended.wait()
            statuses.append(child.status)
        print(set(statuses))
        sys.stdout.flush()
        os._exit(0)
        """
    )

    assert ["{0}"] == lines


def test_a_process_with_threads_is_no_clean_one() -> None:
    lines = said(
        """
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
        try:
            ForkServer.start(nothing, 5.0)
        except RuntimeError as error:
            print(str(error)[:19])
        """
    )

    assert ["threads run already"] == lines


def test_they_die_with_their_driver() -> None:
    process = script(
        """
        def run(end):
            end.sendall(b"here")
            time.sleep(1000)
        server = ForkServer.start(run, 5.0)
        server.watch(nothing, nothing)
        child = server.fork()
        child.line.recv(4)
        while not child.pid:
            time.sleep(0.01)
        print(server.pid, child.pid, flush=True)
        time.sleep(1000)
        """
    )
    try:
        assert process.stdout is not None
        pids = [int(pid) for pid in process.stdout.readline().split()]
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    deadline = time.monotonic() + ENDS_S
    while any(_lives(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.01)

    assert 2 == len(pids)


def _lives(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}
