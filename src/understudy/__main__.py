"""Runs the command line: ``python -m understudy``."""

from understudy.cli.app import main

if __name__ == "__main__":
    main()
