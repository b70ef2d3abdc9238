"""The client of a cluster of which only addresses are known: of one JobManager, or of several.

Any JobManager answers, as a standby passes requests on to the leader. The first answer tells where
the others are, so that the client survives the loss of the JobManager that was named. The token is
sent to no address that is less protected than the named ones, and to loopback only from there: the
loopback of another host is not ours.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import urlsplit

from understudy.api import own_headers
from understudy.api.authentication import OPEN, RestSecurity
from understudy.api.client import QUICK_S, ClusterClient, Content
from understudy.api.views import Json
from understudy.config.security import is_loopback
from understudy.core.ids import process_name
from understudy.errors import UnreachableError
from understudy.ha.retrieval import WHOEVER
from understudy.ha.services import HighAvailabilityServices
from understudy.model import Incarnation, LeaderRecord, Term

if TYPE_CHECKING:
    import httpx

LEARN_S = 10.0
"""How long the known addresses count as complete."""

ADDRESSES_MAX = 32
"""More JobManagers than a cluster has."""


class RemoteClient(ClusterClient):
    """A command's access to a cluster by addresses; it reads no register and no storage."""

    def __init__(
        self,
        services: HighAvailabilityServices,
        addresses: Iterable[str],
        timeout_s: float,
        security: RestSecurity = OPEN,
        *,
        await_leader_s: float = 0.0,
        notify: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``addresses``: the URLs of JobManagers, tried in this order."""
        super().__init__(
            services, timeout_s, security, await_leader_s=await_leader_s, notify=notify
        )
        self._named = [one.rstrip("/") for one in addresses]
        self._known = dict.fromkeys(self._named, "")
        """Addresses, with the process that is expected there; the next one to ask comes first."""
        self._ids: set[str] = set()
        """The JobManagers of the cluster."""
        self._refused = 0
        """Addresses that have refused a connection, one after the other."""
        self._refused_since = 0.0
        self._has_answered = False
        self._learned_at = float("-inf")

    # --- where to ask -----------------------------------------------------------------------------

    async def _leader(self) -> LeaderRecord | None:
        address = next(iter(self._known))
        return LeaderRecord(
            holder=WHOEVER, term=Term(1), session="", name="jobmanager", rpc="-", rest=address
        )

    async def _is_followed(self, leader: LeaderRecord | None) -> bool:
        """Ask at the next address; give up once all have refused for `QUICK_S`."""
        now = asyncio.get_running_loop().time()
        self._refused_since = now if not self._refused else self._refused_since
        self._refused += 1
        first, *others = self._known
        self._known = {one: self._known[one] for one in (*others, first)}
        return self._refused < len(self._known) or now - self._refused_since < QUICK_S

    async def is_alive(self) -> bool:
        """Return whether a JobManager has answered, if only that nobody leads."""
        return self._has_answered and not self._refused

    async def _has_ended(self) -> bool:
        return False

    async def _request(
        self, method: str, path: str, leader: LeaderRecord, body: Content
    ) -> httpx.Response:
        import httpx

        try:
            answer = await super()._request(method, path, leader, body)
        except httpx.ConnectTimeout as error:  # A host that is gone refuses nothing.
            raise httpx.ConnectError(str(error)) from error
        self._check_giver(leader.rest, answer)
        self._refused, self._has_answered = 0, True
        now = asyncio.get_running_loop().time()
        if answer.is_success and now - self._learned_at > LEARN_S:
            self._learned_at = now
            await self._learn(leader)
        return answer

    def _check_giver(self, address: str, answer: httpx.Response) -> None:
        """Forget a learned address at which another process listens by now."""
        import httpx

        giver = Incarnation(answer.headers.get(own_headers.GIVEN_BY, ""))
        # What a standby passes on bears the leader's mark.
        if self._known.get(address) and process_name("jobmanager", giver) not in self._ids:
            self._known.pop(address)
            raise httpx.ReadError(f"somebody else listens at {address}")

    async def _learn(self, asked: LeaderRecord) -> None:
        """Note where the JobManagers are; what is not told just now is known from before."""
        import httpx

        with contextlib.suppress(httpx.HTTPError, ValueError, KeyError, TypeError):
            answer = await super()._request("GET", "/ha/status", asked, None)
            if not answer.is_success:
                return
            told = answer.json()
            found = {one["rest"]: one["id"] for one in (told["leader"], *told["standbys"])}
            fine = {one: who for one, who in found.items() if self._may_be_asked(one)}
            kept = dict.fromkeys(self._named, "")
            known = {asked.rest: self._known.get(asked.rest, ""), **fine, **kept}
            self._known = dict([*known.items()][:ADDRESSES_MAX])
            self._ids = {*found.values()}

    def _may_be_asked(self, address: str) -> bool:
        """Return whether a token may be sent to an address that the cluster names."""
        named = [urlsplit(one) for one in self._named]
        told = urlsplit(address)
        if told.scheme != "https" and any(one.scheme == "https" for one in named):
            return False
        hosts = [one.hostname or "" for one in named]
        return not is_loopback(told.hostname or "") or any(is_loopback(one) for one in hosts)

    # --- what storage would answer ----------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def permit(self, trigger: str, directory: str) -> AsyncIterator[None]:
        """Do nothing: only who can write to the storage may name any directory."""
        yield

    async def stored_overview(self) -> Json:
        """Raise `UnreachableError`: nothing but the cluster can answer, here and below."""
        self._unreachable()

    async def stored_application(self, wanted: str) -> Json:
        """See `stored_overview`."""
        self._unreachable()

    async def stored_results(self, wanted: str) -> list[Json]:
        """See `stored_overview`."""
        self._unreachable()

    async def stored_jobs(self) -> list[Json]:
        """See `stored_overview`."""
        self._unreachable()

    async def stored_checkpoints(self, wanted: str) -> Json:
        """See `stored_overview`."""
        self._unreachable()

    async def attention(self) -> list[Json]:
        """Return the problems that a person must solve."""
        found: list[Json] = (await self.get("/ha/status"))["attention"]
        return found

    async def failures(self, job_id: str) -> list[Json]:
        """Return why attempts of a job failed, the latest first."""
        answer = await self.get(f"/jobs/{job_id}/exceptions")
        found: list[Json] = answer["exceptionHistory"]["entries"]
        return found

    def _unreachable(self) -> NoReturn:
        raise UnreachableError(
            f"no JobManager can be reached at {', '.join(self._named)}, or none leads: see whether "
            "the cluster runs, and whether the address is right"
        )
