"""A job that tells the digest of a large file, which came in an archive on the path."""

import hashlib
import pkgutil
from pathlib import Path

import understudy
from understudy import JobContext


def digest(ctx: JobContext) -> str:
    with Path("jobs.txt").open("a") as file:
        file.write(f"digest {ctx.attempt}\n")
    return hashlib.sha256(pkgutil.get_data("carries", "data.bin") or b"").hexdigest()


understudy.get_environment().execute(digest, name="digest")
