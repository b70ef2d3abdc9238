"""Which coordination the data in a storage belongs to: a small file beside it says so.

Storage alone does not show whether a register knows it. Whoever looks with another register (its
settings are missing, or name another ensemble) finds data without a registry, and would take the
data of a cluster that runs for what is left of one. A register that lies in storage is its own
proof; for any other one the first leader writes the file, before anything else of the cluster.

Addresses are compared, and shown; there are no secrets in them.
"""

from __future__ import annotations

from understudy.errors import DataError, ForeignDataError, NotFoundError
from understudy.ha import layout
from understudy.ha.format import Format
from understudy.ha.storage import Storage
from understudy.model import Record

IN_STORAGE = "filesystem"
"""The type of which the register lies in the storage itself."""


class Coordination(Record, frozen=True):
    """A register, as it is known to all who use it."""

    type: str
    cluster_id: str
    servers: tuple[str, ...] = ()
    """None where the type does not say."""
    path: str = ""

    def is_of(self, other: Coordination) -> bool:
        """Say whether both are one: of an ensemble each process may name other servers."""
        known = bool(self.servers and other.servers)
        same = bool({*self.servers} & {*other.servers}) and self.path == other.path
        return self.type == other.type and (same or not known)

    def __str__(self) -> str:
        where = f" at {','.join(self.servers)}{self.path}" if self.servers else ""
        return f"high-availability.type {self.type}{where}"


notes: Format[Coordination] = Format("coordination", Coordination)


async def note(storage: Storage, cluster: str, mine: Coordination | None) -> None:
    """Note whose the data of a cluster is; raises what storage raises.

    To be called by who leads, once the registry is known to be there, or the data to be nobody's.
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
    """Raise `ForeignDataError` where the data of a cluster is known to another register.

    Data without a note is older than the notes: nothing is known of it.
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
