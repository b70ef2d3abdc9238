"""Options of clusters of several hosts: SSH, and where started processes are recorded."""

from __future__ import annotations

from understudy.config.option import SAME, TEXT, Option

TASKMANAGER_HOST = Option(
    "taskmanager.host",
    TEXT,
    None,
    "The name of a TaskManager's host wherever TaskManagers are shown. Unset: the host's own name.",
    "others connect to this name there; here the TaskManager connects to others",
)
SSH_COMMAND = Option(
    "env.ssh.command",
    TEXT,
    "ssh",
    "The command with which `understudy cluster` reaches the hosts in conf/masters and "
    "conf/workers; it gets options, the host and a command, as ssh does.",
)
SSH_OPTIONS = Option(
    "env.ssh.opts",
    TEXT,
    "",
    "Further options of ssh, in shell syntax: '-i key -p 2222'. ssh never prompts (BatchMode), so "
    "keys must be in place.",
    SAME,
)
SSH_PYTHON = Option(
    "env.ssh.python",
    TEXT,
    None,
    "The Python on the other hosts in which Understudy is installed. Unset: the path of the "
    "Python that runs `understudy cluster`.",
)
PID_DIR = Option(
    "env.pid.dir",
    TEXT,
    None,
    "Where `understudy cluster` records the processes that it has started on a host. Unset: "
    "$XDG_STATE_HOME/understudy/pids.",
    "a directory that others can write to there",
)
