"""How far dumps are believed: what may be a matter of when they were made, or of what they leave out, names nobody."""

from __future__ import annotations

from typing import Any

import pytest

from whichrank.intake.facts import Fact
from whichrank.intake.flight_dump import Dump, parse
from whichrank.intake.read import _of_dumps
from whichrank.intake.recording import Note
from whichrank.model.incident import Cause, Incident
from whichrank.surface.analyze import analyze

Entry = dict[str, Any]


def op(record: int, seq: int, done: bool, name: str = "nccl:all_reduce", group: str = "0", **more: Any) -> Entry:
    """An entry; of a message `seq` is its own number."""
    is_message = "->" in name or "<-" in name
    return {
        "record_id": record, "pg_id": int(group), "process_group": (group, group), "op_id": seq,
        "collective_seq_id": 0 if is_message else seq, "p2p_seq_id": seq if is_message else 0, "is_p2p": is_message,
        "profiling_name": name, "time_created_ns": 10**18 + record * 10**6, "input_sizes": [[8]],
        "input_dtypes": ["Float"], "output_sizes": [[8]], "output_dtypes": ["Float"], "timeout_ms": 600000,
        "state": "completed" if done else "scheduled", "retired": done,
        "time_discovered_completed_ns": 10**18 + record * 10**6 + 1000 if done else None, **more,
    }  # fmt: skip


def dump(rank: int, entries: list[Entry], status: dict[str, tuple[int, int]], **groups: list[int]) -> Dump:
    """The dump of a rank.

    Args:
        rank: Whose.
        entries: Its operations.
        status: By group, the last that was enqueued, and completed.
        groups: Members by name, a letter before it.
    """
    names = {name[1:]: ranks for name, ranks in groups.items()}
    config = {name: {"name": name, "desc": "default_pg" if name == "0" else f"g{name}", "ranks": str(ranks)}
              for name, ranks in names.items() if rank in ranks}  # fmt: skip
    counts = {
        name: {"last_enqueued_collective": enqueued, "last_completed_collective": completed}
        for name, (enqueued, completed) in status.items()
    }
    return parse({"version": "2.10", "pg_config": config, "pg_status": counts, "entries": entries})


def found(dumps: dict[int, Dump], facts: dict[int, Fact] | None = None) -> list[Incident]:
    notes = [(Note(f"dump_{rank}", "flight_recorder", "read", rank), one) for rank, one in dumps.items()]
    return list(analyze(_of_dumps(notes, [note for note, _ in notes], "job", facts or {})))


def names(incidents: list[Incident]) -> list[int]:
    return sorted(c.rank for i in incidents for c in i.culprits)


def one_behind(rank: int, **more: Any) -> list[Entry]:
    """Of eight ranks all but 5 are in round 51."""
    last = [] if rank == 5 else [op(50, 51, False)]
    return [*(op(n, n + 1, True) for n in range(40, 50)), *last]


WORLD = {"_0": list(range(8))}


@pytest.mark.parametrize("known", [[0], [1], [5], list(range(8))])
def test_that_a_log_tells_the_process_of_a_rank_changes_no_name(known: list[int]) -> None:
    # GIVEN ranks that wait for rank 1, which waits for rank 5
    def entries(rank: int) -> list[Entry]:
        before = [op(n, n + 1, True) for n in range(40, 50)]
        last = {5: [], 1: [op(50, 9, False, group="1")]}.get(rank, [op(50, 51, False)])
        return [*before, *last]

    groups = {"_0": list(range(8)), "_1": [1, 5]}
    status = {rank: {"0": (50 + (rank not in (1, 5)), 50), "1": (8 + (rank == 1), 8)} for rank in range(8)}
    dumps = {rank: dump(rank, entries(rank), status[rank], **groups) for rank in range(8)}
    assert names(found(dumps)) == [5]
    facts = {rank: Fact(rank, "node", 4000 + rank) for rank in known}
    assert names(found(dumps, facts)) == [5]


@pytest.mark.parametrize("seen_by", [1, 2, 7])
def test_what_only_one_or_most_have_not_seen_end_is_no_device_at_fault(seen_by: int) -> None:
    # GIVEN eight ranks that all have issued 51 to 55, which some were recorded as complete
    def entries(rank: int) -> list[Entry]:
        return [op(n, n + 1, n < 50 or rank < seen_by) for n in range(40, 55)]

    incidents = found({rank: dump(rank, entries(rank), {}, **WORLD) for rank in range(8)})
    # THEN only where most have seen it, who has not is named
    assert names(incidents) == ([7] if seen_by == 7 else [])
    assert [i.cause for i in incidents] == [Cause.DEVICE if seen_by == 7 else Cause.UNKNOWN]


def test_messages_that_are_in_no_batch_need_not_end_in_order() -> None:
    # GIVEN a stage that has got the message of the stage before it, and not that of the one behind, which hangs
    groups = {"_0": [0, 1, 2, 3], "_1": [0, 1, 2, 3]}
    before = {rank: [op(n, n + 1, True) for n in range(3)] for rank in range(4)}
    entries = {
        0: [*before[0], op(4, 7, True, "nccl:send 0->1", "1"), op(5, 8, False, "nccl:recv 0<-1", "1")],
        1: [*before[1], op(4, 7, False, "nccl:recv 1<-2", "1"), op(5, 8, True, "nccl:recv 1<-0", "1")],
        2: [*before[2], op(4, 7, True, "nccl:send 2->1", "1", time_discovered_completed_ns=5)],
        3: [*before[3], op(4, 7, False, "nccl:recv 3<-2", "1")],
    }
    entries[2].pop()  # it has issued nothing
    status = {0: (8, 7), 1: (8, 8), 2: (0, 0), 3: (7, 6)}
    dumps = {r: dump(r, entries[r], {"0": (3, 3), "1": status[r]}, **groups) for r in range(4)}
    (incident,) = found(dumps)
    assert 1 not in {c.rank for c in (*incident.culprits, *incident.candidates)}


def test_a_batch_of_which_the_ring_has_lost_a_part_contradicts_nobody() -> None:
    # GIVEN collectives of batches, and a rank whose ring begins within one
    def entries(rank: int) -> list[Entry]:
        rows = [
            op(3 * n + part, n + 1, n < 30 or rank == 9, "nccl:reduce_scatter" if part < 2 else "nccl:coalesced")
            for n in range(20, 31)
            for part in range(3)
        ]
        return rows[1:] if rank == 2 else rows

    incidents = found({rank: dump(rank, entries(rank), {}, **WORLD) for rank in range(8)})
    assert all(i.cause != Cause.INCONSISTENT for i in incidents)
    assert names(incidents) == []


def test_a_dump_that_lacks_what_it_counts_is_not_believed() -> None:
    dumps = {rank: dump(rank, one_behind(rank), {"0": (51, 50)}, **WORLD) for rank in range(8) if rank != 5}
    dumps[5] = dump(5, [], {"0": (51, 50)}, **WORLD)
    (incident,) = found(dumps)
    assert (incident.culprits, [c.rank for c in incident.candidates]) == ((), [5])
    # WHEN it counts nothing as under way THEN it is in none
    dumps[5] = dump(5, [], {"0": (50, 50)}, **WORLD)
    assert names(found(dumps)) == [5]


def test_ranks_that_are_all_of_a_new_group_may_wait_for_each_other_unseen() -> None:
    # GIVEN sixteen ranks, of which two that share a group are in nothing
    pair = {"_0": list(range(16)), "_1": [4, 5]}
    apart = {"_0": list(range(16)), "_1": [4, 6]}
    for groups, used, named in ((pair, 0, []), (pair, 7, [4, 5]), (apart, 0, [4, 5])):
        dumps = {
            rank: dump(
                rank,
                [*(op(n, n + 1, True) for n in range(40, 50)), *([] if rank in (4, 5) else [op(50, 51, False)])],
                {"0": (51 - (rank in (4, 5)), 50), "1": (used, used)},
                **groups,
            )
            for rank in range(16)
        }
        (incident,) = found(dumps)
        assert names([incident]) == named
        assert named or [c.rank for c in incident.candidates] == [4, 5]


def test_gloo_never_shows_messages_so_two_that_are_idle_are_candidates() -> None:
    def entries(rank: int, idle: tuple[int, ...]) -> list[Entry]:
        last = [] if rank in idle else [op(50, 51, False, "gloo:all_reduce")]
        return [*(op(n, n + 1, True, "gloo:all_reduce") for n in range(40, 50)), *last]

    for idle, named in (((4, 5), []), ((4,), [4])):
        dumps = {rank: dump(rank, entries(rank, idle), {}, _0=list(range(16))) for rank in range(16)}
        (incident,) = found(dumps)
        assert names([incident]) == named
        assert named or sorted(c.rank for c in incident.candidates) == [4, 5]
