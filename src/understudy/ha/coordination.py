"""A small file beside a cluster's data that names the register which the data belongs to.

Storage alone does not show whether a register knows it. A process with another register (settings
are missing, or name another ensemble) finds data without a registry, and would take the data of a
running cluster for leftovers. A register in storage is its own proof. For any other register the
first leader writes this file before all other data of the cluster.

The file holds addresses, which are compared and shown. They contain no secrets.
"""

from __future__ import annotations

from understudy.errors import DataError, ForeignDataError, NotFoundError
from understudy.ha import layout
from understudy.ha.format import Format
from understudy.ha.storage import Storage
from understudy.model import Record

IN_STORAGE = "filesystem"
"""The type whose register is in the storage itself."""


class Coordination(Record, frozen=True):
    """The identity of a register, the same for all its users."""

    type: str
    cluster_id: str
    servers: tuple[str, ...] = ()
    """Empty if the type has no servers."""
    path: str = ""

    def is_of(self, other: Coordination) -> bool:
        """Return whether both are the same register; processes may name different servers of it."""
        known = bool(self.servers and other.servers)
        same = bool({*self.servers} & {*other.servers}) and self.path == other.path
        return self.type == other.type and (same or not known)

    def __str__(self) -> str:
        where = f" at {','.join(self.servers)}{self.path}" if self.servers else ""
        return f"high-availability.type {self.type}{where}"


notes: Format[Coordination] = Format("coordination", Coordination)


async def note(storage: Storage, cluster: str, mine: Coordination | None) -> None:
    """Write which register a cluster's data belongs to; raises the storage's errors.

    Only a leader calls this, once the registry is known to exist or no register owns the data.
    """
    if mine is None or mine.type == IN_STORAGE:
        return
    path, data = layout.coordination_path(cluster), notes.dump(mine, pretty=True)
    try:
        if await storage.read(path) == data:
            return
    except NotFoundError:
        pass
    await storage.publish(path, data)


async def refuse_others(storage: Storage, cluster: str, mine: Coordination | None) -> None:
    """Raise `ForeignDataError` if a cluster's data belongs to another register.

    Data without the file is accepted: it is older than this check.
    """
    if mine is None:
        return
    path, theirs = layout.coordination_path(cluster), None
    try:
        theirs = notes.load(await storage.read(path), storage.place(path))
    except NotFoundError:
        path = f"{cluster}/{layout.REGISTER}"
        if mine.type != IN_STORAGE and await storage.exists(path):
            theirs = Coordination(IN_STORAGE, mine.cluster_id)
    except DataError as error:
        raise ForeignDataError(
            f"{error}: nobody can say which register knows the data beside it: nothing is run or "
            "removed; put back its latest copy, or remove it where this register is the one"
        ) from error
    if theirs is None or theirs.is_of(mine):
        return
    raise ForeignDataError(
        f"the data of cluster {theirs.cluster_id!r} in {storage.place(cluster)} belongs to {theirs}"
        f", and this is {mine}: nothing is run or removed; use the settings of that cluster, also "
        f"for `understudy list` and `understudy destroy`. Where that register is gone for good, "
        f"remove {storage.place(path)} first"
    )
