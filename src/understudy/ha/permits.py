"""Permits: a directory that a person has named on a command of this host, for one request.

REST alone reaches the configured directories. Who can write to the cluster's storage is the user
who runs the cluster; that user's command writes the directory there, under the id of its request,
and the leader that reads it knows who has asked. A permit goes with the command that wrote it; what
a killed command leaves goes with the application.
"""

from __future__ import annotations

from understudy.errors import NotFoundError
from understudy.ha.layout import permit_path
from understudy.ha.storage import Storage


async def grant(storage: Storage, cluster: str, trigger: str, directory: str) -> None:
    """Let the request with this id name this directory."""
    await storage.publish(permit_path(cluster, trigger), directory.encode())


async def is_granted(storage: Storage, cluster: str, trigger: str, directory: str) -> bool:
    """Say whether the request with this id may name this directory."""
    try:
        found = await storage.read(permit_path(cluster, trigger))
    except NotFoundError:
        return False
    return found == directory.encode()


async def withdraw(storage: Storage, cluster: str, trigger: str) -> None:
    """Remove a permit; absent is fine."""
    path = permit_path(cluster, trigger)
    await storage.delete(path)
    await storage.prune(path.rpartition("/")[0])


async def withdraw_all(storage: Storage, cluster: str) -> None:
    """Remove what commands have left that were killed."""
    directory = permit_path(cluster, "").rstrip("/")
    await storage.delete_tree(directory)
