"""One job that waits without doing anything, until somebody writes into ``go.fifo``."""

import os
from pathlib import Path

import understudy
from understudy import JobContext


def wait(ctx: JobContext) -> None:
    Path("go.fifo").read_text()


os.mkfifo("go.fifo")
understudy.get_environment().execute(wait, name="wait")
