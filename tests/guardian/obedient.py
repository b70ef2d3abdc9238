"""A worker that does what it is told: by its arguments, then line by line; answers each order.

Started by path, like the guardian itself: it starts in milliseconds.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time

GUARDIAN = socket.socket(fileno=int(os.environ["UNDERSTUDY_GUARDIAN_FD"]))


def answer(text: str) -> None:
    os.write(1, text.encode() + b"\n")


def to_guardian(message: dict[str, object]) -> None:
    GUARDIAN.sendall(json.dumps(message).encode() + b"\n")


def beat(seconds: str) -> None:
    """Announce that it will be heard of again within that time."""
    to_guardian({"until": time.clock_gettime(time.CLOCK_BOOTTIME) + float(seconds)})
    answer("beaten")


def beat_on(seconds: str) -> None:
    """Beat for ever, and take no more orders."""
    while True:
        beat(seconds)
        time.sleep(float(seconds) / 4)


def fork(how: str) -> None:
    """Leave a descendant behind, which answers with its pid."""
    reader, writer = os.pipe()
    middle = os.fork()
    if middle == 0:
        if how in {"orphan", "daemon"} and os.fork():
            os._exit(0)
        if how in {"session", "daemon"}:
            os.setsid()
        if how == "deaf":
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
        answer(str(os.getpid()))
        os.close(writer)
        if how == "daemon":
            os.closerange(0, 1024)
        if how == "frozen":
            os.kill(os.getpid(), signal.SIGSTOP)
        while True:
            signal.pause()
    os.close(writer)
    os.read(reader, 1)  # It has answered.
    os.close(reader)
    if how in {"orphan", "daemon"}:
        os.waitpid(middle, 0)


def run_away(seconds: str) -> None:
    """Leave a descendant behind that lives for two milliseconds, and so do its descendants."""
    end = time.monotonic() + float(seconds)
    if os.fork() == 0:
        answer("running")
        while time.monotonic() < end and os.fork() == 0:
            os.setsid()
            time.sleep(0.002)
        os._exit(0)


def deaf() -> None:
    """Ignore the signal that asks to end."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    answer("deaf")


def polite(code: str) -> None:
    """Exit with that code when asked to end."""
    # A handler in Python would not run for a signal that comes just before a read that then blocks.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def leave() -> None:
        signal.sigwait({signal.SIGTERM})
        os._exit(int(code))

    threading.Thread(target=leave, daemon=True).start()
    answer("polite")


def settle(number: str) -> None:
    """Ask the guardian to clear away strays; answer when it says that it has."""
    to_guardian({"settle": int(number)})
    answer(GUARDIAN.recv(4096).decode().strip())


def release(*words: str) -> None:
    """Say what is to be run once all are dead."""
    to_guardian({"release": json.loads(" ".join(words))})
    answer("told")


def released() -> None:
    """Say that nobody will need proof of this death."""
    to_guardian({"released": True})
    answer("released")


def grow(megabytes: str) -> None:
    """Use so much memory."""
    held.append(b"x" * (int(megabytes) << 20))
    answer("grown")


def bomb(number: str) -> None:
    """Fork, and let what is forked fork, until there are so many processes, or they are killed."""
    slots, room = os.pipe()
    os.set_blocking(slots, False)
    os.write(room, b"x" * int(number))
    answer("lit")
    while True:
        try:
            os.read(slots, 1)
        except BlockingIOError:
            signal.pause()
        os.fork()


held: list[bytes] = []


def end(code: str) -> None:
    """Exit."""
    sys.exit(int(code))


def die(number: str) -> None:
    """Die by a signal."""
    os.kill(os.getpid(), int(number))


ORDERS = {
    "beat": beat,
    "beat-on": beat_on,
    "fork": fork,
    "run-away": run_away,
    "deaf": deaf,
    "polite": polite,
    "settle": settle,
    "release": release,
    "released": released,
    "grow": grow,
    "bomb": bomb,
    "end": end,
    "die": die,
}


def obey(order: str) -> None:
    word, *rest = order.split()
    ORDERS[word](*rest)  # type: ignore[operator]


for argument in sys.argv[1:]:
    obey(argument)
for line in sys.stdin:
    obey(line)
while True:  # Nobody gives orders any more; the death of the guardian is death enough.
    signal.pause()
