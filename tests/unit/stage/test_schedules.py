"""Schedules of pipelines, beside those of torch."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whichrank.stage.schedules import Phase, Schedule, ScheduleError, from_csv, gpipe, interleaved, one_f_one_b

pytest.importorskip("torch.distributed.pipelining")
from torch.distributed.pipelining import schedules as theirs
from torch.distributed.pipelining.stage import _PipelineStageBase


class Stage(_PipelineStageBase):
    """A stage of which only the place counts."""

    def __init__(self, index: int, count: int, rank: int, ranks: int) -> None:
        self.stage_index, self.num_stages, self.group_rank, self.group_size = index, count, rank, ranks
        self.has_backward, self.group, self.submod = True, None, None

    def _nothing(self, *_: Any) -> Any:
        raise AssertionError("no stage is run here")

    _create_grad_recv_info = _prepare_backward_infra = _prepare_forward_infra = _nothing


def names(schedule: Schedule) -> list[list[str]]:
    """By rank, as torch writes them."""
    return [
        [schedule.name_of(block) for block in range(schedule.first[rank], schedule.first[rank + 1])]
        for rank in range(schedule.ranks)
    ]


def computations(order: dict[int, list[Any]]) -> list[list[str]]:
    """The same of torch's own."""
    return [[str(one) for one in order[rank] if one is not None and one.is_compute_op] for rank in sorted(order)]


def text_of(order: dict[int, list[Any]]) -> list[str]:
    """The CSV that torch writes."""
    out = io.StringIO(newline="")
    csv.writer(out).writerows(order[rank] for rank in sorted(order))
    return out.getvalue().splitlines()


def torch_order(name: str, ranks: int, per_rank: int, microbatches: int) -> dict[int, list[Any]]:
    made = theirs.get_schedule_class(name)
    if issubclass(made, theirs.PipelineScheduleSingle):
        single = object.__new__(made)
        single._num_stages, single._n_microbatches = ranks, microbatches
        order = single._get_pipeline_order()
        assert order is not None
        if name == "1F1B":  # its last rank counts forward passes from 1, in this picture of the order only
            order[ranks - 1] = [
                a._replace(microbatch_index=a.microbatch_index - 1) if a and a.computation_type == theirs.FORWARD else a
                for a in order[ranks - 1]
            ]
        return order
    stages: Sequence[Any] = [Stage(at * ranks, ranks * per_rank, 0, ranks) for at in range(per_rank)]
    if name in ("ZBVZeroBubble", "DualPipeV"):
        stages = [Stage(0, 2 * ranks, 0, ranks), Stage(2 * ranks - 1, 2 * ranks, 0, ranks)]
    schedule: Any = made(list(stages), microbatches, loss_fn=lambda *_: None)
    return dict(schedule.pipeline_order)


@pytest.mark.parametrize("microbatches", [4, 8, 11])
@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize(("name", "ours"), [("GPipe", gpipe), ("1F1B", one_f_one_b)])
def test_same_order_as_torchs(name: str, ours: Any, ranks: int, microbatches: int) -> None:
    assert names(ours(ranks, microbatches)) == computations(torch_order(name, ranks, 1, microbatches))


@pytest.mark.parametrize(
    ("ranks", "per_rank", "microbatches"), [(2, 2, 4), (4, 2, 8), (4, 3, 10), (4, 2, 4), (8, 2, 16)]
)
def test_interleaved_in_the_same_order_as_torchs(ranks: int, per_rank: int, microbatches: int) -> None:
    expected = computations(torch_order("Interleaved1F1B", ranks, per_rank, microbatches))
    assert names(interleaved(ranks, per_rank, microbatches)) == expected


@pytest.mark.parametrize(
    ("name", "ranks", "per_rank", "microbatches"),
    [
        ("GPipe", 4, 1, 8), ("1F1B", 4, 1, 8), ("Interleaved1F1B", 4, 2, 8), ("LoopedBFS", 4, 2, 8),
        ("InterleavedZeroBubble", 4, 2, 8), ("ZBVZeroBubble", 4, 2, 8), ("DualPipeV", 4, 2, 10),
    ],
)  # fmt: skip
def test_any_schedule_of_torch_is_read(name: str, ranks: int, per_rank: int, microbatches: int) -> None:
    # GIVEN what torch writes of a schedule
    order = torch_order(name, ranks, per_rank, microbatches)
    schedule = from_csv(text_of(order))
    # THEN all its blocks are there, in its order
    flat = [[part for cell in mine for part in cell.removesuffix("OVERLAP_F_B").strip("()").split(";")]
            for mine in computations(order)]  # fmt: skip
    assert names(schedule) == flat
    assert (schedule.ranks, schedule.microbatches) == (ranks, microbatches)
    assert schedule.stages == ranks * per_rank
    # AND no block waits for itself
    assert is_acyclic(schedule)


def test_communication_among_the_actions_is_passed_over() -> None:
    order = torch_order("Interleaved1F1B", 2, 2, 4)
    with_comms = theirs._add_send_recv(order, lambda stage: stage % 2, 4)
    assert names(from_csv(text_of(with_comms))) == names(interleaved(2, 2, 4))


def is_acyclic(schedule: Schedule) -> bool:
    before, after = schedule.edges
    return bool((schedule.levels[before] < schedule.levels[after]).all())


def test_levels_count_what_must_be_done_before() -> None:
    # GIVEN two ranks and two microbatches THEN the last backward pass comes behind five others
    schedule = gpipe(2, 2)
    levels = {schedule.name_of(block): int(level) for block, level in enumerate(schedule.levels)}
    assert levels == {"0F0": 0, "0F1": 1, "1F0": 1, "1F1": 2, "1B0": 3, "1B1": 4, "0B0": 4, "0B1": 5}


def test_dependencies_are_those_of_a_pipeline() -> None:
    schedule = from_csv(["0F0,0F1,,0B0,0B1", ",1F0,(1F1;1I0)OVERLAP_F_B,1I1,1W0,1W1"])
    edges = {(schedule.name_of(a), schedule.name_of(b)) for a, b in zip(*schedule.edges, strict=True)}
    assert edges == {
        ("0F0", "0F1"), ("0F1", "0B0"), ("0B0", "0B1"),  # one after the other
        ("1F0", "1F1"), ("1F0", "1I0"), ("1F1", "1I1"), ("1I0", "1I1"), ("1I1", "1W0"), ("1W0", "1W1"),
        ("0F0", "1F0"), ("0F1", "1F1"), ("1I0", "0B0"), ("1I1", "0B1"),  # between the ranks
        ("0F0", "0B0"), ("0F1", "0B1"), ("1F0", "1I0"), ("1F1", "1I1"), ("1I0", "1W0"), ("1I1", "1W1"),
    }  # fmt: skip
    assert is_acyclic(schedule)


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([], "no blocks"),
        (["0F0,0B0", ","], "line 2 has no forward or backward pass"),
        (["", "0F0,0B0"], "line 1 has no forward or backward pass"),
        (["0" * 200_000], "line 1 is no CSV"),
        (["0B0,0F0"], "needs a block that comes only after it"),
        (["0F0,0B0,0F1,0B1", "1F1,1B1,1F0,1B0"], "needs a block that comes only after it"),
        (["0F0,0B0,0I0,0W0"], "0B0 is to be done in halves as well"),
        (["\u0660F\u0660"], "is no action"),
        (["0F0,0X0"], "line 1: '0X0' is no action"),
        (["0F0", "0F"], "line 2: '0F' names no microbatch"),
        (["0F0,0F0"], "0F0 is to be done twice"),
        (["0F0,0B0", "1F1,1B1"], "needs a block that no rank is to do"),
        (["0F999999,999999F0"], "too many"),
        (["(0F0;0B0;0F1)OVERLAP_F_B"], "more than 2 actions at once"),
        (["(0F0;0B0"], "is no action"),
    ],
)
def test_what_is_no_schedule_is_refused_with_its_reason(lines: list[str], why: str) -> None:
    with pytest.raises(ScheduleError, match=why.replace("(", r"\(")):
        from_csv(lines)


@pytest.mark.parametrize("sizes", [(0, 2, 4), (2, 0, 4), (2, 2, 0), (-1, 1, 2), (4096, 1, 3000), (5000, 1, 1)])
def test_what_is_no_pipeline_is_refused(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(ScheduleError):
        interleaved(*sizes)
    if sizes[1] == 1:
        with pytest.raises(ScheduleError):
            gpipe(sizes[0], sizes[2])


def test_microbatches_that_cannot_be_shared_out_are_refused() -> None:
    with pytest.raises(ScheduleError, match="9 microbatches cannot be shared out among 2 rounds"):
        interleaved(4, 2, 9)


@given(st.lists(st.text("0123FBIW,;()_OVERLAPF ", max_size=60), max_size=6))
@settings(max_examples=300, deadline=None)
def test_no_text_breaks_the_reader(lines: list[str]) -> None:
    try:
        schedule = from_csv(lines)
    except ScheduleError:
        return
    assert set(np.unique(schedule.phase)) <= {int(phase) for phase in Phase}
