"""Marks what a job's process has the JVM compute as the job's, in whichever thread it does so.

Each connection to the JVM has a thread there, and Spark keeps group, description and tags of its
jobs for each such thread. By default PySpark gives each thread of Python a connection of its own,
so that what the job's main thread has set would not hold for the threads that the job starts.
Therefore each connection is marked when it is made. Streaming queries and callbacks run in threads
that the JVM has started from a marked one: they inherit the tag.
"""

from __future__ import annotations

import threading

from py4j.java_gateway import JavaGateway
from py4j.protocol import CALL_COMMAND_NAME, END_COMMAND_PART, get_command_part

from understudy.core.handover import Handover


def group_of_threads(group: str) -> str:
    """Return the group of Spark jobs from other threads than the job's main thread.

    It is a group of its own so that a cancelled job's threads can be refused all further Spark
    jobs (of a long queue, for instance), while its main thread may still clean up.
    """
    return f"{group} threads"


def mark_connections(gateway: JavaGateway, handover: Handover) -> None:
    """Mark each connection that is made from now on, with the group and one tag of its name."""
    client = gateway._gateway_client
    # Only with pinned threads does a connection belong to a thread.
    pinned = hasattr(client, "_create_new_connection")
    name = "_create_new_connection" if pinned else "_create_connection"
    create = getattr(client, name)

    def connect() -> object:
        connection = create()
        in_main = not pinned or threading.current_thread() is threading.main_thread()
        group = handover.group if in_main else group_of_threads(handover.group)
        calls = ("setJobGroup", group, handover.label, True), ("addJobTag", handover.group)
        for method, *arguments in calls:
            # Not through Py4J's client, which would make one more connection for it.
            connection.send_command(_call(handover.context, method, *arguments))
        return connection

    setattr(client, name, connect)


def _call(target: str, method: str, *arguments: object) -> str:
    parts = "".join(get_command_part(one) for one in arguments)
    return f"{CALL_COMMAND_NAME}{target}\n{method}\n{parts}{END_COMMAND_PART}"
