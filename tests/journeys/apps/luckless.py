"""Its job fails once, then succeeds; the other one fails for good."""

import understudy
from understudy import JobContext, JobFailed


def retried(ctx: JobContext) -> int:
    if ctx.attempt == 1:
        raise ValueError("password=hunter22 \x1b[2J no luck")
    return ctx.attempt


def hopeless(ctx: JobContext) -> None:
    raise ImportError("nobody has this module")


env = understudy.get_environment()
env.execute(retried)
try:
    env.execute(hopeless)
except JobFailed as error:
    print("caught", error.error_type)
