"""A tree that uses more than its limits allow is killed whole, and the limit is named."""

from __future__ import annotations

import time

from tests.guardian.conftest import StartGuard
from tests.guardian.ground import Guard, alive, lock_is_free, until
from understudy.process import guardian

MEMORY = {"what": "memory", "most": 100 << 20, "option": "main.max-memory"}
PROCESSES = {"what": "processes", "most": 20, "option": "main.max-processes"}
LIMITS = [PROCESSES, MEMORY]


def test_a_worker_that_uses_too_much_memory_is_killed_and_named(guard: StartGuard) -> None:
    one = guard(limits=LIMITS)
    pid = one.started()
    assert "grown" == one.order("grow", 150)
    note = one.hear("reaped")

    assert "main.max-memory" == note["exceeded"]
    assert "more than the 100 MB that main.max-memory allows" in note["reason"]
    assert f"process {pid} (" in note["reason"]
    assert lock_is_free(one.lock)


def test_what_processes_share_counts_once(guard: StartGuard) -> None:
    one = guard(limits=LIMITS)
    pid = one.started()
    one.order("grow", 60)
    pids = [pid, *(int(one.order("fork", "child")) for _ in range(5))]

    assert sum(map(guardian.resident_bytes, pids)) > 6 * 60 << 20
    assert sum(map(guardian.own_bytes, pids)) < 100 << 20
    assert outlives_looks(one)


def test_a_fork_bomb_is_killed_whole_and_its_neighbour_lives(guard: StartGuard) -> None:
    neighbour = guard(incarnation="two", limits=LIMITS)
    bystander = neighbour.started()
    one = guard(limits=LIMITS)
    one.started()
    assert "lit" == one.order("bomb", 200)
    note = one.hear("reaped")

    assert "main.max-processes" == note["exceeded"]
    assert "more than the 20 that main.max-processes allows" in note["reason"]
    assert [] == guardian.children_of(one.guardian_pid)
    assert alive(bystander)
    assert "beaten" == neighbour.order("beat", 60)


def test_where_the_kernel_lists_no_children_all_processes_are_looked_at() -> None:
    assert set(guardian.descendants()) == set(guardian.tree_of(1 << 22, 10))


def test_a_worker_within_its_limits_is_left_alone(guard: StartGuard) -> None:
    one = guard(limits=LIMITS)
    one.started()
    one.order("grow", 20)
    one.order("fork", "session")
    until(lambda: len(guardian.tree_of(one.guardian_pid, 10)) == 2)

    assert outlives_looks(one)


def outlives_looks(one: Guard) -> bool:
    """Return whether a worker answers after its guardian has looked at it twice."""
    over = guardian.now() + 2.5 * guardian.LOOK_S
    while guardian.now() < over:
        time.sleep(0.05)
        if one.order("beat", 60) != "beaten":
            return False
    return True
