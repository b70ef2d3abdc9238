"""A script that has never heard of Understudy: it appends a row, waits, and appends another."""

import argparse
import logging
import os
import sys
import time
from pathlib import Path

from unconverted_rows import append  # type: ignore[import-not-found]

logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.INFO)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("target")
    parser.add_argument("--code", type=int)
    parser.add_argument("--text")
    parser.add_argument("--exit", type=int)
    arguments = parser.parse_args()
    append(arguments.target, f"first of {Path(sys.argv[0]).name} {Path(__file__).name}")
    append("pid.txt", str(os.getpid()))
    if arguments.code is not None:
        sys.exit(arguments.code)
    if arguments.exit is not None:
        os._exit(arguments.exit)
    if arguments.text:
        raise ValueError(arguments.text)
    logging.info("it waits")
    while not Path("go").exists():
        time.sleep(0.02)
    append(arguments.target, "second")
    print("done")


if __name__ == "__main__":
    main()
