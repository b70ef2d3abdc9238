"""Mains and jobs that do what nobody would expect of them; argv[1] says which."""

import os
import sys

import understudy
from understudy import JobContext, JobFailed, SubmissionError


class Silent(Exception):  # noqa: N818
    def __str__(self) -> str:
        raise RuntimeError("not even this can be told")


def not_utf8(ctx: JobContext) -> None:
    raise ValueError("cannot open caf\udce9.csv")


def silent(ctx: JobContext) -> None:
    raise Silent


def nested(ctx: JobContext) -> object:
    return understudy.get_environment().execute(not_utf8, name="inner").value


def with_environment(ctx: JobContext) -> object:
    return env.execute(not_utf8, name="inner").value


env = understudy.get_environment()
how = sys.argv[1]
if how == "fork":
    child = os.fork()
    if child == 0:
        try:
            env.execute(not_utf8)
        except SubmissionError as error:
            print("refused in the child:", error)
            sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)
elif how == "exit-message":
    sys.exit("there is nothing to load")
elif how == "not-callable":
    try:
        env.execute(5, name="five")  # type: ignore[call-overload]
    except SubmissionError as error:
        print("refused:", error)
else:
    job = {"not-utf8": not_utf8, "silent": silent, "nested": nested, "captured": with_environment}
    try:
        env.execute(job[how], name="odd")
    except JobFailed as error:
        print("failed:", error.error_type, error.args[0].encode("ascii", "backslashreplace"))
    except SubmissionError as error:
        print("refused:", error)
