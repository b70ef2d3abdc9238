"""Everything that one attempt keeps for the next: the parts behind `JobContext`."""

from __future__ import annotations

from dataclasses import dataclass, field

from understudy.clock import Clock
from understudy.driver.checkpointing import Recorder
from understudy.driver.job_writes import JobWrites
from understudy.driver.kept_state import StateKeeper
from understudy.driver.kept_tables import TableKeeper
from understudy.driver.streaming import StreamKeeper
from understudy.ha.storage import BlockingStorage
from understudy.process.forks import Home
from understudy.rpc.messages import Deploy


@dataclass(frozen=True)
class Keeping:
    """The parts of an attempt's kept state, one for each kind of checkpoint."""

    state: StateKeeper
    tables: TableKeeper
    streams: StreamKeeper
    writes: JobWrites
    home: Home = field(default_factory=Home)

    @classmethod
    def of(
        cls, deploy: Deploy, recorder: Recorder, storage: BlockingStorage, clock: Clock
    ) -> Keeping:
        """Create the parts for an attempt."""
        state = StateKeeper(deploy, recorder, storage, clock)
        return cls(
            state,
            TableKeeper(deploy, recorder, storage, clock),
            StreamKeeper(deploy, recorder, storage, clock),
            JobWrites.of(deploy, recorder, state, clock),
        )
