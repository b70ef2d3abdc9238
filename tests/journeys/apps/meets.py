"""A main and a job that use a library of their own, while another application does the same."""

import sys
import time
from pathlib import Path

import cherry  # type: ignore[import-not-found]

import understudy
from understudy import JobContext

OWN, OTHER = sys.argv[1:3]


def meet(what: str) -> str:
    """Note that this one is there, and wait for the other; return the library's version."""
    Path(f"{what}-{OWN}").touch()
    until = time.monotonic() + 150
    while not Path(f"{what}-{OTHER}").exists():
        assert time.monotonic() < until, "the other one does not come"
        time.sleep(0.02)
    return str(cherry.VERSION)


def version(ctx: JobContext) -> str:
    return meet("job")


print(f"main of {OWN} has {meet('main')}")
print(f"job of {OWN} has {understudy.get_environment().execute(version, name=OWN).value}")
