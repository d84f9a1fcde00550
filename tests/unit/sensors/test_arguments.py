"""The Python sensor reads the arguments of each operator as the schema says, and its signatures say what differs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from whichrank.model.codes import Flag
from whichrank.model.kinds import Kind
from whichrank.sensors.arguments import NONE, OPERATORS, Group, Operator, flat, hash_of, mix, operators

CPU, META, NONE_OF_THEM = frozenset({"cpu"}), frozenset({"meta"}), frozenset[str]()
GLOO = Group(slot=3, timeout_ms=1000, first_timeout_ms=3000, gloo_devices=CPU, other_devices=NONE_OF_THEM)
MIXED = Group(slot=3, timeout_ms=1000, first_timeout_ms=3000, gloo_devices=CPU, other_devices=META)
NCCL = Group(slot=3, timeout_ms=1000, first_timeout_ms=3000, gloo_devices=NONE_OF_THEM, other_devices=CPU)
ANY_GROUP: Any = None


class ReduceOp:
    """Stands for the script object that the dispatcher passes."""

    def __init__(self, number: int) -> None:
        self.number = number

    def op(self) -> int:
        return self.number


def operator(name: str) -> Operator:
    return next(op for op in operators() if op.name == name)


def ones(*counts: int, dtype: Any = torch.float32) -> list[Any]:
    return [torch.ones(count, dtype=dtype) for count in counts]


def all_reduce(*counts: int, reduce_op: int = 0, dtype: Any = torch.float32, group: Group = GLOO) -> Any:
    arguments = (ones(*counts, dtype=dtype), ANY_GROUP, ReduceOp(reduce_op), None)
    return operator("allreduce_").read(arguments, group).op


def test_every_operator_is_known_to_this_torch() -> None:
    assert {op.name for op in operators()} == set(OPERATORS)


def test_all_reduce_is_described() -> None:
    op = all_reduce(5, 2, reduce_op=4, dtype=torch.int64)
    assert (op.comm_slot, op.kind, op.dtype, op.reduce_op, op.peer, op.tag) == (3, Kind.ALL_REDUCE, 4, 4, -1, 0)
    assert (op.count, op.timeout_ms) == (7, 1000)
    assert op.flags == Flag.FALLBACK | Flag.ASYNC  # async_op was left out: its default is True


def test_arguments_that_are_given_win_over_defaults() -> None:
    arguments = (ones(5), ANY_GROUP, ReduceOp(0), None, False, 250)
    op = operator("allreduce_").read(arguments, GLOO).op
    assert (op.flags, op.timeout_ms) == (Flag.FALLBACK, 250)


@pytest.mark.parametrize(("group", "timeout_ms"), [(GLOO, 3000), (NCCL, 1000)])
def test_send_of_gloo_keeps_the_timeout_that_its_group_was_made_with(group: Group, timeout_ms: int) -> None:
    assert operator("send").read((ones(5), ANY_GROUP, 1, 0), group).op.timeout_ms == timeout_ms


def test_timeout_that_is_too_long_for_a_row_is_cut() -> None:
    arguments = (ones(5), ANY_GROUP, ReduceOp(0), None, False, 365 * 86_400_000)
    assert operator("allreduce_").read(arguments, GLOO).op.timeout_ms == 0xFFFFFFFF


def test_each_call_has_an_op_of_its_own() -> None:
    one, other = all_reduce(5), all_reduce(5)
    one.counter = 77
    assert other.counter == 0
    assert one.signature == other.signature


@pytest.mark.parametrize(
    "other",
    [all_reduce(6), all_reduce(5, reduce_op=1), all_reduce(5, dtype=torch.int32), all_reduce(2, 3), all_reduce(3, 2)],
)
def test_signature_says_what_differs(other: Any) -> None:
    assert all_reduce(5).signature not in (0, other.signature)


def test_root_is_part_of_a_broadcast() -> None:
    roots = [operator("broadcast_").read((ones(5), ANY_GROUP, root, 0), GLOO).op for root in (0, 1)]
    assert [op.peer for op in roots] == [0, 1]
    assert roots[0].signature != roots[1].signature


def test_scatter_agrees_between_root_and_the_others() -> None:
    read = operator("scatter_").read
    root = read((ones(4), [ones(4, 4)], ANY_GROUP, 0), GLOO).op
    leaf = read((ones(4), [], ANY_GROUP, 0), GLOO).op
    assert (root.count, leaf.count) == (4, 4)
    assert root.signature == leaf.signature != 0


def test_a_list_to_gather_into_says_the_sizes_of_all() -> None:
    # GIVEN members that give 4 and 2 elements, which all of them declare WHEN read THEN they agree
    read = operator("allgather_").read
    first = read(([ones(4, 2)], ones(4), ANY_GROUP), GLOO).op
    second = read(([ones(4, 2)], ones(2), ANY_GROUP), GLOO).op
    assert (first.count, second.count) == (6, 6)
    assert first.signature == second.signature != 0


def test_uneven_all_to_all_keeps_its_splits() -> None:
    arguments = (torch.ones(3), torch.ones(5), ANY_GROUP, [1, 2], [2, 3])
    reading = operator("alltoall_base_").read(arguments, GLOO)
    assert reading.op.signature == 0  # it does not agree among members, and need not
    assert reading.op.flags & Flag.UNEVEN
    assert (reading.op.splits, [list(part) for part in reading.keep]) == (2, [[2, 3], [1, 2]])


def test_splits_are_reported_in_elements() -> None:
    # GIVEN rows of four elements, and a list with a tensor for each member WHEN read THEN both say elements
    rows = operator("alltoall_base_").read((torch.ones(3, 4), torch.ones(5, 4), ANY_GROUP, [1, 2], [2, 3]), GLOO)
    assert [list(part) for part in rows.keep] == [[8, 12], [4, 8]]
    lists = operator("alltoall_").read((ones(1, 2), ones(3, 5), ANY_GROUP, -1), GLOO)
    assert [list(part) for part in lists.keep] == [[3, 5], [1, 2]]
    assert lists.op.flags & Flag.UNEVEN


def test_more_splits_than_are_kept_are_flagged() -> None:
    arguments = (torch.ones(65), torch.ones(65), ANY_GROUP, [1] * 65, [1] * 65)
    assert operator("alltoall_base_").read(arguments, GLOO).op.flags & Flag.SPLITS_CUT


def test_send_has_peer_and_tag() -> None:
    op = operator("send").read((ones(9), ANY_GROUP, 2, 44), GLOO).op
    assert (op.kind, op.peer, op.tag, op.count, op.reduce_op) == (Kind.SEND, 2, 44, 9, NONE)
    any_source = operator("recv_any_source_").read((ones(9), ANY_GROUP, 44), GLOO).op
    assert (any_source.kind, any_source.peer, any_source.tag) == (Kind.RECV_ANY, -1, 44)


def test_barrier_needs_no_tensor() -> None:
    op = operator("barrier").read((torch.empty(0), ANY_GROUP, []), GLOO).op
    assert (op.kind, op.count) == (Kind.BARRIER, 0)
    assert op.signature == mix(Kind.BARRIER, 1)


def test_backend_is_that_of_the_device() -> None:
    assert operator("allreduce_").read((ones(2), ANY_GROUP, ReduceOp(0), None), MIXED).gloo
    elsewhere = ([torch.ones(2, device="meta")], ANY_GROUP, ReduceOp(0), None)
    reading = operator("allreduce_").read(elsewhere, MIXED)
    assert not reading.gloo
    assert reading.op.flags & Flag.END_INFERRED
    assert all_reduce(2, group=NCCL).flags & Flag.END_INFERRED


def test_tensors_that_the_operation_fills_are_named() -> None:
    into, source = torch.ones(4), torch.ones(2)
    assert operator("_allgather_base_").read((into, source, ANY_GROUP), GLOO).filled == [into]
    assert operator("broadcast_").read(([source], ANY_GROUP, 0, 0), GLOO).filled == [source]


def test_nested_lists_are_flattened() -> None:
    one, other = ones(1, 2)
    assert flat(one) == [one]
    assert [t.numel() for t in flat([[one, other], [other]])] == [1, 2, 2]
    assert flat([]) == flat(None) == []


def test_hashes_stay_in_64_bits() -> None:
    assert 0 <= hash_of([2**63, 5, 7]) < 2**64
    assert 0 <= mix(2**64 - 1, 2**64 - 1) < 2**64
    assert hash_of([1, 2]) != hash_of([2, 1])
