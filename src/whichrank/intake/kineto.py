"""Traces of PyTorch's profiler (Kineto), of one rank each: kernels on the device, and what NCCL's say of themselves.

Read are kernels and the profiler's marks of steps; a trace is streamed, so its size costs time and not memory. NCCL's
kernels carry their process group since torch 2.2. Time on the device in which a kernel of NCCL runs and nothing else
does is blocked; what is left of a step is the rank's own, computing and waiting for its host alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Annotated, Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from whichrank.errors import FormatError
from whichrank.intake.json_list import JsonList

KEY: Final = "traceEvents"
MOST_KERNELS: Final = 1 << 25
MOST_GROUPS: Final = 1 << 16
MOST_MEMBERS: Final = 1 << 20
MOST_US: Final = 1e13
"""From the first kernel of a trace to its end: nobody profiles for a hundred days."""
_STEP: Final = "ProfilerStep#"
_ON_DEVICE: Final = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_MARKS: Final = {"gpu_user_annotation": 1, "user_annotation": 0}


_Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
_Number = Annotated[int, msgspec.Meta(ge=-1, lt=1 << 32)]
_Rank = Annotated[int, msgspec.Meta(ge=-1, lt=MOST_MEMBERS)]


class _Event(msgspec.Struct):
    """One event, as far as it matters."""

    ph: str = ""
    cat: str = ""
    name: msgspec.Raw = msgspec.Raw(b'""')
    ts: msgspec.Raw = msgspec.Raw(b"0")
    dur: msgspec.Raw = msgspec.Raw(b"0")
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _NcclArgs(msgspec.Struct, rename={
    "collective": "Collective name", "count": "In msg nelems",
    "group": "Process Group Name", "desc": "Process Group Description", "ranks": "Process Group Ranks", "seq": "Seq",
    "src": "Src Rank", "dst": "Dst Rank",
}):  # fmt: skip
    """What a kernel of NCCL says of itself."""

    collective: str = ""
    count: _Count = 0
    group: str = ""
    desc: str = ""
    ranks: str | list[_Rank] = ""
    seq: _Number = -1
    src: _Rank = -1
    dst: _Rank = -1
    dtype: str = ""


@dataclass(frozen=True)
class Nccl:
    """A kernel of NCCL.

    Attributes:
        group: Name of its process group, "" if it does not say.
        collective: As NCCL's caller names it; "" if it does not say.
        count: Elements of its input.
        dtype: As torch names it.
        seq: Its number in the group, -1 unknown.
        peer: Group rank of the other end of a message, -1 none or unknown.
    """

    group: str
    collective: str
    count: int
    dtype: str
    seq: int
    peer: int


@dataclass(frozen=True)
class Trace:
    """The trace of one rank. Times are nanoseconds on its own clock.

    Attributes:
        rank: Global rank, None if it does not say.
        world_size: 0 if it does not say.
        host: "" if it does not say.
        groups: By name, what a process group is for and its members.
        start_ns: Of each kernel, sorted.
        end_ns: Of the same.
        nccl: Index into `said` of NCCL's kernels, -1 for others.
        said: What these say.
        steps: Number and beginning of each step, the end of the last one behind them.
    """

    rank: int | None
    world_size: int
    host: str
    groups: dict[str, tuple[str, tuple[int, ...]]]
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    nccl: NDArray[np.int64]
    said: tuple[Nccl, ...]
    steps: tuple[tuple[int, int], ...]


def read_trace(stream: IO[bytes]) -> Trace:
    """The trace in a JSON text.

    Raises:
        FormatError: It is none, or damaged.
    """
    listed = JsonList(stream, KEY)
    decoder, arguments = msgspec.json.Decoder(list[_Event]), msgspec.json.Decoder(_NcclArgs)
    said: dict[Nccl, int] = {}
    groups: dict[str, tuple[str, tuple[int, ...]]] = {}
    columns: list[NDArray[np.float64]] = []
    marks: tuple[dict[int, tuple[float, float]], dict[int, tuple[float, float]]] = ({}, {})
    total = 0
    for piece in listed.pieces():
        try:
            rows = list(_kernels(decoder.decode(piece), arguments, said, groups, marks))
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise FormatError(f"an event cannot be read: {error}") from error
        total += len(rows)
        if total > MOST_KERNELS:
            raise FormatError(f"it has more than {MOST_KERNELS:,} kernels")
        if rows:
            columns.append(np.array(rows, np.float64))
    about = listed.around.get("distributedInfo") or {}
    groups |= _configured(about)
    table = np.concatenate(columns) if columns else np.zeros((0, 3))
    table = table[np.argsort(table[:, 0], kind="stable")]
    steps = marks[1] or marks[0]
    zero = float(table[0, 0]) if len(table) else min((begin for begin, _ in steps.values()), default=0.0)
    _check_times(table, steps, zero)
    start_ns = ((table[:, 0] - zero) * 1e3).astype(np.int64)
    return Trace(
        rank=_whole(about.get("rank")),
        world_size=_whole(about.get("world_size")) or 0,
        host=str(listed.around.get("host_name", ""))[:64],
        groups=groups,
        start_ns=start_ns,
        end_ns=start_ns + (table[:, 1] * 1e3).astype(np.int64),
        nccl=table[:, 2].astype(np.int64),
        said=tuple(said),
        steps=_steps(steps, zero),
    )


def _check_times(table: NDArray[np.float64], marks: dict[int, tuple[float, float]], zero: float) -> None:
    """Refuse a trace with a time that is none: JSON and its readers know infinity, and a text may say anything."""
    times = np.concatenate([table[:, :2], np.array([*marks.values()], np.float64).reshape(-1, 2)])
    if (
        not np.isfinite(times).all()
        or (np.abs(times[:, 0] - zero) > MOST_US).any()
        or not ((times[:, 1] >= 0) & (times[:, 1] <= MOST_US)).all()
    ):
        raise FormatError("an event has a time that is none")


def _kernels(
    events: list[_Event], arguments: msgspec.json.Decoder[_NcclArgs], said: dict[Nccl, int],
    groups: dict[str, tuple[str, tuple[int, ...]]], marks: tuple[dict[int, tuple[float, float]], ...],
) -> Iterator[tuple[float, float, int]]:  # fmt: skip
    """Start and length in microseconds of each kernel, and the index of what it says if it is NCCL's."""
    for event in events:
        if event.ph != "X":
            continue
        if event.cat in _ON_DEVICE:
            name = bytes(event.name)
            number = -1
            if b"nccl" in name[:64]:
                number = said.setdefault(_nccl(event.args, arguments, groups), len(said))
            yield _us(event.ts), _us(event.dur), number
        elif event.cat in _MARKS and bytes(event.name).startswith(b'"' + _STEP.encode()):
            digits = bytes(event.name)[len(_STEP) + 1 : -1]
            if digits.isdigit() and len(digits) < 10:
                of_kind, begin, lasted = marks[_MARKS[event.cat]], _us(event.ts), _us(event.dur)
                first, long = of_kind.get(int(digits), (begin, lasted))  # each stream has a mark of its own
                start = min(first, begin)
                of_kind[int(digits)] = start, max(first + long, begin + lasted) - start


def _us(raw: msgspec.Raw) -> float:
    """A time, which some write as a text."""
    return float(bytes(raw).strip(b'"') or 0)


def _nccl(
    raw: msgspec.Raw, arguments: msgspec.json.Decoder[_NcclArgs], groups: dict[str, tuple[str, tuple[int, ...]]]
) -> Nccl:
    try:
        args = arguments.decode(raw)
    except msgspec.DecodeError:
        args = _NcclArgs()
    members = _members(args.ranks)
    if args.group and args.group not in groups and len(groups) < MOST_GROUPS:
        groups[args.group] = (args.desc, members)
    peer = args.dst if args.collective == "send" else args.src if args.collective == "recv" else -1
    return Nccl(args.group, args.collective.lower(), args.count, args.dtype, args.seq, peer)


def _members(ranks: str | list[int]) -> tuple[int, ...]:
    """Of a list as a text; a long one is cut by the profiler ("[0, 1, ..., 63]") and says nothing."""
    if isinstance(ranks, list):
        return tuple(ranks)
    parts = [part.strip() for part in ranks.strip("[] ").split(",") if part.strip()]
    return tuple(map(int, parts)) if all(part.isdecimal() and len(part) < 8 for part in parts) else ()


def _configured(about: dict[str, Any]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Process groups that the trace's head lists."""
    found = {}
    config = about.get("pg_config")
    for group in config if isinstance(config, list) else []:
        ranks = group.get("ranks") if isinstance(group, dict) else None
        if isinstance(ranks, list) and all(isinstance(rank, int) and 0 <= rank < MOST_MEMBERS for rank in ranks):
            found[str(group.get("pg_name", ""))] = (str(group.get("pg_desc", "")), tuple(ranks))
    return found


def _steps(marks: dict[int, tuple[float, float]], zero: float) -> tuple[tuple[int, int], ...]:
    """Consecutive steps: the number and beginning of each, then the end of the last."""
    numbers = sorted(marks)
    run = [n for place, n in enumerate(numbers) if n - numbers[0] == place]
    begun = [(n, round((marks[n][0] - zero) * 1e3)) for n in run]
    return (*begun, (run[-1] + 1, round((sum(marks[run[-1]]) - zero) * 1e3))) if run else ()


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and 0 <= value < 1 << 17 else None
