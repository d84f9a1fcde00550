"""How far dumps are believed: what may be a matter of when they were made, or of what they leave out, names nobody."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from whichrank.intake.by_kind import of_dumps
from whichrank.intake.facts import Fact
from whichrank.intake.flight_dump import Dump, parse
from whichrank.intake.log_job import Said
from whichrank.intake.recording import Note
from whichrank.model.incident import Cause, Incident
from whichrank.server.analyze import analyze
from whichrank.verdict.words.text import paragraph

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
    return list(analyze(of_dumps(notes, [note for note, _ in notes], "job", Said(facts or {}))))


def names(incidents: list[Incident]) -> list[int]:
    return sorted(c.rank for i in incidents for c in i.culprits)


def one_behind(rank: int, **more: Any) -> list[Entry]:
    """Of eight ranks all but 5 are in round 51."""
    last = [] if rank == 5 else [op(50, 51, False)]
    return [*(op(n, n + 1, True) for n in range(40, 50)), *last]


WORLD = {"_0": list(range(8))}


@pytest.mark.parametrize("known", [[0], [1], [5], list(range(8))])
def test_that_a_log_says_the_process_of_a_rank_changes_no_name(known: list[int]) -> None:
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


@pytest.mark.parametrize("missing", [(6,), (2, 6, 7)])
def test_who_left_no_dump_is_a_candidate_beside_the_rank_that_is_named(missing: tuple[int, ...]) -> None:
    # GIVEN rank 5 is in nothing while the others wait, and some dumps are not there
    dumps = {rank: dump(rank, one_behind(rank), {"0": (51 - (rank == 5), 50)}, **WORLD) for rank in range(8)}
    (whole,) = found(dumps)
    (incident,) = found({rank: one for rank, one in dumps.items() if rank not in missing})
    # THEN it is named as before, and they are candidates, who are no victims
    assert (names([whole]), whole.candidates) == ([5], ())
    assert (names([incident]), [c.rank for c in incident.candidates]) == ([5], list(missing))
    assert {c.why for c in incident.candidates} == {"others wait for it, and there is no recording of it"}
    assert not set(incident.victims.ranks) & {5, *missing}
    assert not incident.complete
    assert "not read: there is no dump of it" in paragraph(incident)


def test_candidates_whose_dump_is_clean_are_told_from_those_without_one() -> None:
    # GIVEN Gloo, where ranks 4 and 5 are in nothing that is recorded, and rank 6 has left no dump
    def entries(rank: int) -> list[Entry]:
        return [op(n, n + 1, n < 50, "gloo:all_reduce") for n in range(40, 50 if rank in (4, 5) else 51)]

    dumps = {rank: dump(rank, entries(rank), {}, **WORLD) for rank in range(8) if rank != 6}
    (incident,) = found({rank: dataclasses.replace(one, backend="gloo") for rank, one in dumps.items()})
    why = {c.rank: c.why for c in incident.candidates}
    assert (names([incident]), sorted(why)) == ([], [4, 5, 6])
    assert why[4] == why[5] != why[6]
    assert why[6] == "others wait for it, and there is no recording of it"
    assert "had not entered" in why[4] or "has not entered" in why[4]


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
                [
                    *(op(2000 + n, n + 1, True) for n in range(40, 50)),
                    *([] if rank in (4, 5) else [op(2050, 51, False)]),
                ],
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


def test_an_idle_rank_that_nobody_waits_for_may_be_what_the_other_waits_for() -> None:
    # GIVEN rank 3, for which all of a group wait, and rank 0 outside of that group; neither is in anything
    groups = {"_0": list(range(8)), "_1": [1, 2, 3, 4, 5, 6, 7]}
    before = [op(2000 + n, n + 1, True) for n in range(10)]

    def entries(rank: int, idle: tuple[int, ...]) -> list[Entry]:
        return [*before, *([] if rank in idle else [op(2010, 5, False, group="1")])]

    def status(rank: int, idle: tuple[int, ...]) -> dict[str, tuple[int, int]]:
        return {"0": (10, 10), "1": (5 - (rank in idle), 4)}

    idle = (0, 3)
    (incident,) = found({r: dump(r, entries(r, idle), status(r, idle), **groups) for r in range(8)})
    # THEN both are candidates; one that waits itself would leave the other
    assert (names([incident]), [c.rank for c in incident.candidates]) == ([], [3, 0])
    dumps = {r: dump(r, entries(r, (3,)), status(r, (3,)), **groups) for r in range(1, 8)}
    dumps[0] = dump(0, [*before, op(2010, 11, False)], {"0": (11, 10)}, **groups)
    assert names(found(dumps)) == [3]


@pytest.mark.parametrize("first", [100, 5000])
def test_in_a_job_that_has_just_begun_two_that_are_idle_may_make_a_communicator(first: int) -> None:
    # GIVEN sixteen ranks, of which two are in nothing
    def entries(rank: int) -> list[Entry]:
        before = [op(first + n, n + 1, True) for n in range(40, 50)]
        return before if rank in (4, 9) else [*before, op(first + 50, 51, False)]

    dumps = {rank: dump(rank, entries(rank), {}, _0=list(range(16))) for rank in range(16)}
    (incident,) = found(dumps)
    assert names([incident]) == ([] if first == 100 else [4, 9])


def test_a_part_of_a_batch_may_long_be_answered() -> None:
    # GIVEN ranks 0 to 3 that exchange in a ring, of which 2 has not come; 0 is done with it, and then in nothing
    groups = {"_0": list(range(12)), "_1": list(range(1, 12))}

    def entries(rank: int) -> list[Entry]:
        rows = [op(4000, 1, True)]
        if rank in (0, 1, 3):
            paths = (f"send {rank}->{(rank + 1) % 4}", f"recv {rank}<-{(rank - 1) % 4}")
            rows += [op(4001 + at, 7, False, f"nccl:{path}") for at, path in enumerate(paths)]
            whole = op(4003, 0, rank == 0, "nccl:coalesced", is_p2p=True)
            rows.append(whole | {"p2p_seq_id": 7})
        return rows if rank in (0, 2) else [*rows, op(4004, 1, False, group="1")]

    found_in = found({rank: dump(rank, entries(rank), {}, **groups) for rank in range(12)})
    # THEN it is not said to be waited for, though a part of the batch of rank 3 is for it
    assert names(found_in) == []
    assert [c.rank for i in found_in for c in i.candidates] == [2, 0]


def test_a_ring_that_is_full_of_what_is_under_way_does_not_say_what_is_complete() -> None:
    # GIVEN rings of thirty, in which rank 5 has issued less than the others, and so holds older ones
    def entries(rank: int) -> list[Entry]:
        last = 95 if rank == 5 else 100
        return [op(2000 + n, n, False) for n in range(last - 29, last + 1)]

    dumps = {rank: dump(rank, entries(rank), {"0": (95 if rank == 5 else 100, 60)}, **WORLD) for rank in range(8)}
    # THEN what the others hold no more is not complete on them; all that is reported is that rank 5 has issued less
    incidents = found(dumps)
    assert all(i.cause != Cause.DEVICE for i in incidents)


def test_collectives_that_count_messages_too_are_not_compared() -> None:
    # GIVEN version 1, in which rank 0 has sent one message more, so that its collectives have other numbers
    def entries(rank: int) -> list[Entry]:
        messages = [op(2000, 1, True, f"nccl:send {rank}->{(rank + 1) % 8}")] if rank == 0 else []
        kinds = ["nccl:all_reduce", "nccl:reduce", "nccl:all_reduce", "nccl:reduce"]
        at = len(messages)
        rounds = [op(2001 + n, n + 1 + at, n < 3, kind) for n, kind in enumerate(kinds)]
        return [*messages, *rounds]

    def old(rank: int) -> Dump:
        new = dump(rank, entries(rank), {}, **WORLD)
        return dataclasses.replace(new, version="1.5")

    assert names(found({rank: old(rank) for rank in range(8)})) == []
    assert names(found({rank: dump(rank, entries(rank), {}, **WORLD) for rank in range(8)})) != []


def test_what_a_status_counts_is_no_proof_where_there_are_messages_too() -> None:
    # GIVEN rank 1 in no operation of a group whose last number is that of a message, and rank 0 that waits in a round
    groups = {"_0": list(range(8)), "_1": [0, 1]}
    entries = {rank: [op(2000, 51, False)] for rank in range(2, 8)}
    entries[0] = [op(2000, 9, False, group="1"), op(2001, 10, False, "nccl:send 0->1", "1")]
    entries[1] = []
    status = {rank: {"0": (51, 50)} for rank in range(2, 8)} | {0: {"0": (50, 50), "1": (9, 8)}, 1: {"0": (50, 50)}}
    status[1]["1"] = (13, 13)
    dumps = {rank: dump(rank, rows, status[rank], **groups) for rank, rows in entries.items()}
    # THEN rank 0 is not taken for one that does not see an end
    assert names(found(dumps)) == [1]
