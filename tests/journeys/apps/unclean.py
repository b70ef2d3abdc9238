"""Jobs that treat their process badly, one after the other, each followed by a look around.

``argv`` names them; what ``main`` sees of each goes into ``seen.jsonl``.
"""

import _thread
import decimal
import gc
import json
import logging
import os
import resource
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

import understudy
from understudy import JobContext, JobFailed


class Unspeakable(BaseException):
    def __str__(self) -> str:
        raise KeyboardInterrupt


class Unpicklable(Exception):  # noqa: N818
    def __init__(self) -> None:
        super().__init__("it holds a lock")
        self.lock = threading.Lock()


def look(ctx: JobContext) -> dict[str, Any]:
    mask = os.umask(0o022)
    os.umask(mask)
    sys.stdout.write("looked\n")
    return {
        "mine": Path.cwd() == HOME,
        "mask": mask,
        "left": os.environ.get("LEFT"),
        "ignored": signal.getsignal(signal.SIGTERM) is signal.SIG_IGN,
        "threads": [t.name for t in threading.enumerate() if t.name.startswith("left")],
        "children": [pid for pid in os.listdir("/proc") if _parent(pid) == os.getpid()],
        "files": resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 17,
        "output": [Path(f"/proc/self/fd/{number}").exists() for number in (1, 2)],
        "blocks": [os.get_blocking(number) for number in (1, 2)],
        "json": json.dumps([1]),
        "recursion": sys.getrecursionlimit(),
        "timeout": socket.getdefaulttimeout(),
        "collected": gc.isenabled(),
        "log level": logging.getLogger().level,
        "precision": decimal.getcontext().prec,
        "imported": "left_behind" in sys.modules,
        "path": "/left" in sys.path,
        "counted": _thread._count(),
        "driver": os.getppid(),
    }


def _parent(pid: str) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    except (OSError, ValueError):
        return 0


def fill_memory(ctx: JobContext) -> int:
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, resource.RLIM_INFINITY))
    return len([bytearray(1 << 26) for _ in range(64)])


def fork_children(ctx: JobContext) -> None:
    for _ in range(20):
        if os.fork() == 0:
            time.sleep(1000)
            os._exit(0)


def fork_daemon(ctx: JobContext) -> None:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(1000)
        os._exit(0)
    os.wait()


def print_binary(ctx: JobContext) -> None:
    os.write(1, bytes(range(256)) * 100)
    os.write(2, b"\xff\n\r\x1b[2J\n")


def print_much(ctx: JobContext) -> None:
    for _ in range(100):
        os.write(1, b"z" * (1 << 20))


def start_thread(ctx: JobContext) -> None:
    threading.Thread(target=time.sleep, args=(1000,), name="left").start()


def start_daemon_thread(ctx: JobContext) -> None:
    threading.Thread(target=time.sleep, args=(1000,), name="left", daemon=True).start()


def exit_0(ctx: JobContext) -> None:
    os._exit(0)


def exit_3(ctx: JobContext) -> None:
    os._exit(3)


def sys_exit(ctx: JobContext) -> None:
    sys.exit("it has had enough")


def sys_exit_list(ctx: JobContext) -> None:
    sys.exit([1])  # type: ignore[arg-type]


def interrupt(ctx: JobContext) -> None:
    raise KeyboardInterrupt


def unspeakable(ctx: JobContext) -> None:
    raise Unspeakable


def unpicklable(ctx: JobContext) -> None:
    raise Unpicklable


def recurse(ctx: JobContext) -> None:
    recurse(ctx)


def say_much(ctx: JobContext) -> None:
    raise ValueError("the table was " + "x" * 70_000_000 + " and ended")


def close_output(ctx: JobContext) -> None:
    os.close(1)
    os.close(2)


def lose_output(ctx: JobContext) -> None:
    sys.stdout = sys.stderr = None


def close_all(ctx: JobContext) -> None:
    os.closerange(3, 4096)
    time.sleep(1000)


def change_directory(ctx: JobContext) -> None:
    os.chdir("/")


def remove_directory(ctx: JobContext) -> None:
    gone = HOME / "gone"
    gone.mkdir(exist_ok=True)
    os.chdir(gone)
    gone.rmdir()


def change_mask(ctx: JobContext) -> None:
    os.umask(0o777)


def change_environment(ctx: JobContext) -> None:
    os.environ["LEFT"] = "behind"


def change_handlers(ctx: JobContext) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def change_limits(ctx: JobContext) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (17, 17))


def patch_json(ctx: JobContext) -> None:
    json.dumps = lambda *_, **__: "patched"


def block_no_more(ctx: JobContext) -> None:
    os.set_blocking(1, False)
    os.set_blocking(2, False)


def change_recursion(ctx: JobContext) -> None:
    sys.setrecursionlimit(500)


def change_timeout(ctx: JobContext) -> None:
    socket.setdefaulttimeout(0.001)


def stop_collecting(ctx: JobContext) -> None:
    gc.disable()


def change_log_level(ctx: JobContext) -> None:
    logging.getLogger().setLevel(logging.CRITICAL)


def change_precision(ctx: JobContext) -> None:
    decimal.getcontext().prec = 2


def start_raw_thread(ctx: JobContext) -> None:
    _thread.start_new_thread(time.sleep, (1000,))


def start_named_threads(ctx: JobContext) -> None:
    for name in ("asyncio_0", "py4j-left", "understudy-left"):
        threading.Thread(target=time.sleep, args=(1000,), name=name, daemon=True).start()


def add_module(ctx: JobContext) -> None:
    sys.modules["left_behind"] = sys
    sys.path.insert(0, "/left")


def freeze(ctx: JobContext) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def kill_itself(ctx: JobContext) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_its_parent(ctx: JobContext) -> None:
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(1000)


def kill_its_driver(ctx: JobContext) -> None:
    os.kill(_parent(str(os.getppid())), signal.SIGKILL)
    time.sleep(1000)


def kill_its_guardian(ctx: JobContext) -> None:
    os.kill(_parent(str(_parent(str(os.getppid())))), signal.SIGKILL)
    time.sleep(1000)


def freeze_its_parent(ctx: JobContext) -> None:
    os.kill(os.getppid(), signal.SIGSTOP)
    time.sleep(1000)


def become_another(ctx: JobContext) -> None:
    os.execv(sys.executable, [sys.executable, "-c", "raise SystemExit(5)"])


def become_another_for_long(ctx: JobContext) -> None:
    os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(1000)"])


HOME = Path.cwd()

if __name__ == "__main__":
    env = understudy.get_environment()
    with open("seen.jsonl", "w", encoding="utf-8") as file:
        for name in sys.argv[1:]:
            job = globals()[name]
            told: dict[str, Any] = {"job": name}
            try:
                told["value"] = env.execute(job, name=name).value
            except JobFailed as error:
                told |= {"type": error.error_type, "message": str(error)}
            told["then"] = env.execute(look, name=f"after {name}").value
            file.write(json.dumps(told) + "\n")
            file.flush()
