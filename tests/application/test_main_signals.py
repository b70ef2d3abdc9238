"""A signal to a process of ``main`` is a loss, at whatever moment it comes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from understudy.model import Incarnation
from understudy.process import channels

PATIENCE_S = 60.0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_before_main_is_executed_ends_its_process_as_a_signal(
    number: signal.Signals,
) -> None:
    """Its exit code would be taken for one of ``main``'s: the application would have failed."""
    with channels.pair() as (mine, theirs), mine:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "understudy.application.application_process"],
            env={**os.environ, **channels.child_environment(theirs, Incarnation("main"))},
            pass_fds=[theirs.fileno()],
        )
        try:
            mine.settimeout(PATIENCE_S)
            ready = mine.recv(1)
            process.send_signal(number)
            code = process.wait(PATIENCE_S)
        finally:
            process.kill()
            process.wait()

    assert ready
    assert -number == code
