"""Jobs with names that nobody should give; what became of each goes into ``seen.jsonl``."""

import json
import sys
from pathlib import Path

import understudy
from understudy import JobContext, SubmissionError

LONG = "é" * 5_000
NAMES = [
    "n" * 1_000,
    "é" * 500,
    "../../x",
    "/etc/passwd",
    "%2e%2e%2f%2e%2e%2fx",
    "two\nlines",
    "2026-01-01 00:00:00 jobmanager-00000000 ERROR a line\r\nX-Header: yes",
    "\x1b[2J\x1b]0;title\x07\x08\x9b1A",
    "\u202egnp.exe\u2066",
    "a\0b",
    "[bold]brackets[/bold] [/x]",
    "{braces} %s %(x)s $HOME `id`",
    "--help",
    "\ufeff\u200b",
    "naïve \U0001f986 鸭子",
    "<script>alert(1)</script>",
    LONG,
    "",
    " \t\n",
    "half \ud83e of a duck",
]


def ask(ctx: JobContext) -> list[str]:
    ctx.log.warning("runs")
    print("runs")
    return [ctx.name]


if __name__ == "__main__":
    env = understudy.get_environment()
    with Path("seen.jsonl").open("w") as file:
        for name in NAMES:
            told: dict[str, object] = {"name": name}
            try:
                told["value"] = env.execute(ask, name=name).value
            except SubmissionError as error:
                told["refused"] = str(error)
            file.write(json.dumps(told) + "\n")
    if "hold" in sys.argv:
        while not Path("go").exists():
            pass
