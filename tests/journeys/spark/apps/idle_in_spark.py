"""One job that waits after a query without doing anything, until somebody writes into a pipe."""

import os
from pathlib import Path

import understudy
from understudy import JobContext


def wait(ctx: JobContext) -> int:
    rows = ctx.spark.range(1000).count()
    Path("go.fifo").read_text()
    return rows


os.mkfifo("go.fifo")
understudy.get_environment().execute(wait, name="wait")
