"""Its job and its main log a value that was configured as a secret, and fail with it."""

import logging

import understudy
from understudy import JobContext, JobFailed

PIN = "0815-4711-2342"


def show(ctx: JobContext) -> None:
    ctx.log.warning("the job knows %s", PIN)
    raise ValueError(f"the job fails with {PIN}")


if __name__ == "__main__":
    try:
        understudy.get_environment().execute(show)
    except JobFailed as error:
        print("told:", error)
    logging.getLogger("understudy").warning("main knows %s", PIN)
    raise ValueError(f"main fails with {PIN}")
