"""One dump of PyTorch's Flight Recorder, pickle or JSON, of versions 1 and 2 (written "2.0" to "2.10").

A dump is what one process knew of its own operations: the last ones of its ring, or only those that were still active.
It says nothing of its rank, its host or when it was made. The rank is the one that all its groups have in common, else
the number in the file's name. Fields came one by one with the versions, so all but the first ones may be missing.

A pickle of a hundred bytes can hold tuples within tuples that take minutes to hash, compare or write out. So the type
of a value is looked at before anything else is done with it.
(torch: FlightRecorder.hpp; what its fields mean is in torch's own reader.)
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from math import prod
from operator import itemgetter
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from whichrank.errors import FormatError
from whichrank.intake.plain_pickle import load_plain
from whichrank.intake.plain_text import for_people
from whichrank.model.kinds import Kind, is_collective, is_message

ENTRY: Final = np.dtype(
    [
        ("record", "i8"),  # number in the ring, over all groups
        ("group", "i4"),  # index into `Dump.groups`
        ("pg", "i8"),  # the process's own number for the group
        ("seq", "i8"),  # counts the collectives of the group
        ("p2p_seq", "i8"),  # counts its sends and receives, and batches of them
        ("op", "i8"),  # counts all that was issued on the group, also what is not recorded
        ("kind", "u1"),
        ("p2p", "?"),
        ("whole", "?"),  # stands for a whole batch of coalesced operations
        ("lists", "?"),  # of tensors whose sizes may differ between members
        ("peer", "i4"),  # group rank, -1 none
        ("state", "u1"),  # 0 scheduled, 1 started, 2 completed
        ("retired", "?"),  # taken off the recorder's list of operations to watch
        ("dtype", "u1"),
        ("count", "i8"),  # elements of the input
        ("out_count", "i8"),
        ("created_ns", "i8"),  # unix time
        ("started_ns", "i8"),  # 0 not known
        ("completed_ns", "i8"),  # 0 not known
        ("timeout_ms", "i8"),
    ]
)
SCHEDULED, STARTED, COMPLETED = 0, 1, 2
STATES: Final = {"scheduled": SCHEDULED, "started": STARTED, "completed": COMPLETED}
MOST_ENTRIES: Final = 1 << 20
MOST_GROUPS: Final = 1 << 16
MOST_MEMBERS: Final = 1 << 20
MOST_FRAMES: Final = 64
MOST_DIMENSIONS: Final = 64
MOST_NS: Final = 1 << 62
MOST_NUMBER: Final = 1 << 53
MOST_ELEMENTS: Final = 1 << 62
_MOST_TEXT: Final = 256
_VERSIONS: Final = ("1", "2")

KINDS: Final = {
    "all_reduce": Kind.ALL_REDUCE,
    "allreduce": Kind.ALL_REDUCE,
    "all_reduce_barrier": Kind.BARRIER,
    "barrier": Kind.BARRIER,
    "broadcast": Kind.BROADCAST,
    "_broadcast_oop": Kind.BROADCAST,
    "reduce": Kind.REDUCE,
    "_reduce_oop": Kind.REDUCE,
    "all_gather": Kind.ALL_GATHER,
    "allgather": Kind.ALL_GATHER,
    "all_gather_v": Kind.ALL_GATHER,
    "all_gather_single": Kind.ALL_GATHER,
    "_all_gather_base": Kind.ALL_GATHER,
    "_allgather_base": Kind.ALL_GATHER,
    "reduce_scatter": Kind.REDUCE_SCATTER,
    "reduce_scatter_v": Kind.REDUCE_SCATTER,
    "reduce_scatter_single": Kind.REDUCE_SCATTER,
    "_reduce_scatter_base": Kind.REDUCE_SCATTER,
    "all_to_all": Kind.ALL_TO_ALL,
    "alltoall": Kind.ALL_TO_ALL,
    "alltoall_base": Kind.ALL_TO_ALL,
    "all_to_all_single": Kind.ALL_TO_ALL,
    "all_to_all_v_single": Kind.ALL_TO_ALL,
    "gather": Kind.GATHER,
    "gather_single": Kind.GATHER,
    "scatter": Kind.SCATTER,
    "allreduce_coalesced": Kind.ALL_REDUCE_COALESCED,
    "ALLGATHER_coalesced": Kind.ALL_GATHER_COALESCED,
    "all_gather_into_tensor_coalesced": Kind.ALL_GATHER_COALESCED,
    "REDUCE_SCATTER_coalesced": Kind.REDUCE_SCATTER_COALESCED,
    "reduce_scatter_tensor_coalesced": Kind.REDUCE_SCATTER_COALESCED,
}
DTYPES: Final = {
    "Byte": 0, "Char": 1, "Short": 2, "Int": 3, "Long": 4, "Half": 5, "Float": 6, "Double": 7, "ComplexHalf": 8,
    "ComplexFloat": 9, "ComplexDouble": 10, "Bool": 11, "BFloat16": 15, "Float8_e5m2": 23, "Float8_e4m3fn": 24,
}  # fmt: skip
UNKNOWN_DTYPE: Final = 255
OF_ALL: Final = ("default_pg", "mesh_default")
"""What the groups that all ranks are in are for."""
OF_LISTS: Final = frozenset(
    {"all_gather", "allgather", "all_gather_v", "reduce_scatter", "reduce_scatter_v", "gather", "scatter"}
)
NOT_KNOWN: Final = -1
"""In the place of a member of a group whose rank no line says."""
_FIELDS: Final[dict[str, Any]] = {
    "record_id": 0, "pg_id": -1, "process_group": ("", ""), "collective_seq_id": 0, "seq_id": 0, "p2p_seq_id": 0,
    "op_id": 0, "profiling_name": "", "state": "scheduled", "retired": False, "is_p2p": False, "timeout_ms": 0,
    "time_created_ns": 0, "time_discovered_started_ns": 0, "time_discovered_completed_ns": 0,
    "input_sizes": (), "output_sizes": (), "input_dtypes": (),
}  # fmt: skip
"""What is read of an operation, and what it is where that is not said."""
_NUMBERS: Final = {
    "record": ("record_id",), "pg": ("pg_id",), "seq": ("collective_seq_id", "seq_id"), "p2p_seq": ("p2p_seq_id",),
    "op": ("op_id",), "created_ns": ("time_created_ns",), "started_ns": ("time_discovered_started_ns",),
    "completed_ns": ("time_discovered_completed_ns",), "timeout_ms": ("timeout_ms",),
}  # fmt: skip
"""By column, the names that its field has had, the present one first."""
_TEXT, _BOOL, _NUMBER = frozenset({str}), frozenset({bool}), frozenset({int})
_NUMBER_OR_NONE: Final = frozenset({int, type(None)})
_NAME: Final = re.compile(r"^(?:(?P<backend>[\w-]+):)?(?P<op>[\w-]+)(?: (?P<me>\d+)(?P<way>->|<-)(?P<peer>\d+))?$")
_IN_FILE_NAME: Final = re.compile(r"rank[_-]?(\d+)", re.IGNORECASE)


@dataclass(frozen=True)
class Group:
    """A process group as the dump names it.

    Attributes:
        name: Unique within the process.
        desc: What it is for, as the program says; "" or "undefined" if it does not.
        members: Global ranks by group rank, `NOT_KNOWN` where that is not said; empty if the dump says none.
    """

    name: str
    desc: str
    members: tuple[int, ...] = ()


@dataclass(frozen=True)
class Dump:
    """One dump.

    Attributes:
        version: Of its format.
        backend: `nccl`, `gloo`, ...; "" if no operation says.
        groups: Those that are named in it.
        status: By the process's own number of a group: last enqueued, last completed; -1 unknown.
        entries: Rows of ENTRY, by `record`.
        frames: Where the latest operation was issued, innermost frame first: `function (file:line)`.
        rank: The one that all groups have in common, None if that is not one.
    """

    version: str
    backend: str
    groups: tuple[Group, ...]
    status: dict[int, tuple[int, int]]
    entries: NDArray[Any]
    frames: tuple[str, ...] = ()
    rank: int | None = None
    hides_messages: bool = False
    """Sends and receives were issued and none is recorded, as on Gloo: who is in no operation may be in one of them."""


def is_dump(value: object) -> bool:
    """Is this the content of a dump, as far as its outermost keys say?"""
    return (
        isinstance(value, Mapping) and "version" in value and bool({"entries", "pg_status", "pg_config"} & set(value))
    )


def read_pickle(data: bytes) -> Dump:
    """A dump in a pickle.

    Raises:
        FormatError: It is none, or damaged.
    """
    return parse(load_plain(data))


def read_json(data: bytes) -> Dump:
    """A dump in JSON.

    Raises:
        FormatError: It is none, or damaged.
    """
    try:
        return parse(msgspec.json.decode(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"the JSON cannot be read: {error}") from error


def rank_in_name(name: str) -> int | None:
    """The rank that a file's name ends in, or names."""
    stem = name.rsplit("/", 1)[-1]
    named = _IN_FILE_NAME.search(stem)
    numbers = re.findall(r"\d+", stem.split(".", 1)[0]) or re.findall(r"\d+", stem)
    digits = named.group(1) if named else numbers[-1] if numbers else ""
    return int(digits) if digits and len(digits) < 8 else None


def parse(value: Any) -> Dump:
    """The columns of a dump.

    Args:
        value: What was in the file: plain values.

    Raises:
        FormatError: It is no dump, of a version that is not known, or a field has a wrong type.
    """
    if not is_dump(value):
        raise FormatError("it is no dump of the Flight Recorder")
    version = value["version"]
    if not isinstance(version, str):
        raise FormatError("it is a dump whose version is no text")
    version = version[:16]
    if version.split(".")[0] not in _VERSIONS:
        raise FormatError(f"it is a dump of version {version}, and versions 1 and 2 are known")
    try:
        return _parsed(value, version)
    except FormatError:
        raise
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError, IndexError) as error:
        raise FormatError(
            f"it is a dump of version {version} with a field that does not fit: {str(error)[:_MOST_TEXT]}"
        ) from error


def _parsed(value: Mapping[str, Any], version: str) -> Dump:
    raw = value.get("entries") or []
    if not isinstance(raw, list) or len(raw) > MOST_ENTRIES:
        raise FormatError("its entries are no list of operations")
    config = value.get("pg_config") or {}
    if len(config) > MOST_GROUPS:
        raise FormatError(f"it names more than {MOST_GROUPS:,} process groups")
    groups = {_text(name): _group(_text(name), about) for name, about in config.items()}
    groups.pop("", None)  # Gloo's, which say nothing
    index = {name: i for i, name in enumerate(groups)}
    entries, backend = _entries(raw, groups, index)
    status = {int(pg): _status(about) for pg, about in (value.get("pg_status") or {}).items()}
    common = _common([group.members for group in groups.values() if group.members])
    return Dump(
        version=version,
        backend=backend or ("nccl" if value.get("nccl_version") or value.get("comm_lib_version") else ""),
        groups=tuple(groups.values()),
        status=status,
        entries=entries,
        frames=_frames(raw[-1]) if raw else (),
        rank=next(iter(common)) if len(common) == 1 else None,
        hides_messages=_hides_messages(entries),
    )


def _group(name: str, about: Mapping[str, Any]) -> Group:
    ranks = about.get("ranks") or []
    if isinstance(ranks, str):
        ranks = [part for part in ranks.strip("[] ").split(",") if part.strip()]
    if len(ranks) > MOST_MEMBERS:
        raise FormatError(f"a group has more than {MOST_MEMBERS:,} members")
    members = tuple(int(rank) for rank in ranks)
    if any(not 0 <= rank < MOST_MEMBERS for rank in members):
        raise FormatError(f"the members of group {name} are no ranks")
    return Group(name, _text(about.get("desc", "")), members)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a value of type {type(value).__name__} stands where a text belongs")
    return for_people(value, _MOST_TEXT)


def _status(about: Mapping[str, Any]) -> tuple[int, int]:
    found = int(about.get("last_enqueued_collective", -1)), int(about.get("last_completed_collective", -1))
    if not all(-1 <= number < MOST_NUMBER for number in found):
        raise FormatError("the status of a group counts what cannot be counted")
    return found


def _hides_messages(entries: NDArray[Any]) -> bool:
    """Is more counted between two collectives of a group than is recorded?"""
    rows = entries[(entries["op"] > 0) & is_collective(entries["kind"])]
    rows = rows[np.lexsort((rows["record"], rows["group"]))]
    same = rows["group"][1:] == rows["group"][:-1]
    counted, recorded = (np.diff(rows[name])[same] for name in ("op", "seq"))
    is_recorded = bool(entries["p2p"].any()) or bool((entries["p2p_seq"] > 0).any())
    return not is_recorded and bool((counted > recorded).any())


def _common(groups: list[tuple[int, ...]]) -> set[int]:
    return reduce(lambda a, b: a & b, map(set, groups)) if groups else set()


def _entries(raw: list[Any], groups: dict[str, Group], index: dict[str, int]) -> tuple[NDArray[Any], str]:
    """Rows of ENTRY, and the backend; groups that only entries name are added."""
    rows = np.zeros(len(raw), ENTRY)
    if not raw:
        return rows, ""
    columns = _columns(raw)
    names, of = _distinct(_all_of(_TEXT, columns["profiling_name"]))
    ops = [_named(name) for name in names]
    for name, at in (("kind", 1), ("peer", 2), ("whole", 3), ("lists", 4)):
        rows[name] = np.array([op[at] for op in ops])[of]
    groups_named = list(map(tuple, columns["process_group"]))
    _all_of(_TEXT, list(chain.from_iterable(groups_named)))
    pairs, of = _distinct(groups_named)
    rows["group"] = np.array([_place(pair, groups, index) for pair in pairs])[of]
    rows["state"] = [STATES[state] for state in _all_of(_TEXT, columns["state"])]
    rows["retired"] = _all_of(_BOOL, columns["retired"])
    for name, field in _NUMBERS.items():
        rows[name] = _numbers(columns[next((other for other in field if other in raw[0]), field[0])])
    for name in ("record", "seq", "p2p_seq", "op"):
        if not -1 <= rows[name].min() <= rows[name].max() < MOST_NUMBER:
            raise FormatError("an operation has a number that is none")
        rows[name] = np.maximum(rows[name], 0)
    for name in ("created_ns", "started_ns", "completed_ns"):
        if not 0 <= rows[name].min() <= rows[name].max() < MOST_NS:
            raise FormatError("it has a time that is none")
    rows["count"], rows["out_count"] = _elements(columns["input_sizes"]), _elements(columns["output_sizes"])
    types, of = _distinct(_all_of(_TEXT, [types[0] if types else "" for types in columns["input_dtypes"]]))
    rows["dtype"] = np.array([DTYPES.get(name, UNKNOWN_DTYPE) for name in types])[of]
    of_kind = is_message(rows["kind"])
    rows["p2p"] = _all_of(_BOOL, columns["is_p2p"]) if "is_p2p" in raw[0] else of_kind
    rows["p2p"] |= of_kind
    if (rows["kind"] == Kind.NONE).all() and not rows["whole"].any():
        raise FormatError("it holds no operation that is known")
    return rows[np.argsort(rows["record"], kind="stable")], next((op[0] for op in ops if op[0]), "")


def _columns(raw: list[Any]) -> dict[str, Sequence[Any]]:
    """By field, what each operation says. As a rule all have the same fields, and then one call reads an operation."""
    first = raw[0]
    if all(len(entry) == len(first) for entry in raw):
        fields = [name for name in _FIELDS if name in first]
        try:
            found = dict(zip(fields, zip(*map(itemgetter(*fields, fields[0]), raw), strict=True), strict=False))
        except (KeyError, IndexError):
            pass
        else:
            return {name: found.get(name) or [otherwise] * len(raw) for name, otherwise in _FIELDS.items()}
    return {name: [entry.get(name, otherwise) for entry in raw] for name, otherwise in _FIELDS.items()}


def _distinct(values: Sequence[Any]) -> tuple[list[Any], list[int]]:
    """The different values in the order of their first, and the place of each value among them."""
    places: dict[Any, int] = {}
    of = [places.setdefault(value, len(places)) for value in values]
    return list(places), of


def _all_of(kinds: frozenset[type], values: Sequence[Any]) -> Sequence[Any]:
    """These values, all of one of these types."""
    if others := set(map(type, values)) - kinds:
        raise TypeError(f"a value of type {next(iter(others)).__name__} stands where none belongs")
    return values


def _numbers(values: Sequence[Any]) -> Sequence[Any]:
    types = set(map(type, values))
    if types == _NUMBER:
        return values
    return [0 if value is None else value for value in _all_of(_NUMBER_OR_NONE, values)]


def _named(name: str) -> tuple[str, int, int, bool, bool]:
    """What `nccl:send 0->1` says: backend, kind, peer's group rank, whether it is a batch, or of lists."""
    found = _NAME.match(name)
    if not found:
        return "", int(Kind.OTHER), -1, False, False
    backend, op = found["backend"] or "", found["op"]
    peer = int(found["peer"]) if found["peer"] and len(found["peer"]) < 8 else -1
    if op in ("send", "recv"):
        kind = Kind.SEND if op == "send" else Kind.RECV if found["peer"] else Kind.RECV_ANY
        return backend, int(kind), peer, False, False
    return backend, int(KINDS.get(op, Kind.OTHER)), -1, op == "coalesced", op in OF_LISTS


def _place(process_group: Any, groups: dict[str, Group], index: dict[str, int]) -> int:
    name, desc = map(_text, process_group)
    at = index.get(name)
    if at is None:
        at = index[name] = len(index)
        groups[name] = Group(name, desc)
        if len(index) > MOST_GROUPS:
            raise FormatError(f"it names more than {MOST_GROUPS:,} process groups")
    return at


def _elements(sizes: Sequence[Any]) -> Sequence[int]:
    """Of all tensors of each operation; one of one dimension is so common that it has a way of its own."""
    found = [of_one[0][0] if len(of_one) == 1 and len(of_one[0]) == 1 else _elements_of(of_one) for of_one in sizes]
    if not 0 <= min(_all_of(_NUMBER, found)) <= max(found) <= MOST_ELEMENTS:
        raise FormatError("a tensor has a size that is none")
    return found


def _elements_of(shapes: Sequence[Any]) -> int:
    if any(len(shape) > MOST_DIMENSIONS for shape in shapes):
        raise FormatError(f"a tensor has more than {MOST_DIMENSIONS} dimensions")
    sizes = _all_of(_NUMBER, list(chain.from_iterable(shapes)))
    if sizes and not 0 <= min(sizes) <= max(sizes) <= MOST_ELEMENTS:
        raise FormatError("a tensor has a size that is none")
    return sum(map(prod, shapes))


def _frames(entry: Mapping[str, Any]) -> tuple[str, ...]:
    frames = entry.get("frames") or ()
    return tuple(_frame(frame) for frame in frames[:MOST_FRAMES])


def _frame(frame: Mapping[str, Any]) -> str:
    name, file = (_text(frame.get(key, "?")) for key in ("name", "filename"))
    return f"{name} ({file}:{int(frame.get('line', 0))})"
