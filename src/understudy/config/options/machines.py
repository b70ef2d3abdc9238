"""Options of clusters of several hosts: SSH, and where started processes are recorded."""

from __future__ import annotations

from understudy.config.option import SAME, TEXT, Option

TASKMANAGER_HOST = Option(
    "taskmanager.host",
    TEXT,
    None,
    "How the host of a TaskManager is called where TaskManagers are shown. Unset: as it calls "
    "itself.",
    "others reach it there by this name; here it is the TaskManager that connects",
)
SSH_COMMAND = Option(
    "env.ssh.command",
    TEXT,
    "ssh",
    "What `understudy cluster` runs to reach another host of conf/masters and conf/workers; it is "
    "given options, the host and a command, as ssh is.",
)
SSH_OPTIONS = Option(
    "env.ssh.opts",
    TEXT,
    "",
    "Further options of ssh, as in a shell: '-i key -p 2222'. It never asks (BatchMode), so keys "
    "must be in place.",
    SAME,
)
SSH_PYTHON = Option(
    "env.ssh.python",
    TEXT,
    None,
    "The Python on the other hosts that Understudy is installed in. Unset: the path of the one "
    "that runs `understudy cluster`.",
)
PID_DIR = Option(
    "env.pid.dir",
    TEXT,
    None,
    "Where `understudy cluster` records the processes that it has started on a host. Unset: "
    "$XDG_STATE_HOME/understudy/pids.",
    "a directory there in which others may write",
)
