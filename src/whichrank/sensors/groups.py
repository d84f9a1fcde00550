"""Tells a c10d sensor when a process group is made, when it gets another timeout, and when it is shut down.

Both sensors would learn of a group from its first operation, but that is too late: a group's identity counts how often
a group of its name and members was made, and a rank that never used the first one would count differently. So the one
function of torch through which Python makes groups is wrapped, and the methods of `ProcessGroup` that split, merge and
shut down. Where a torch has no such function, groups are known from their first operation as before.

A timeout may be changed at any time (torchtitan does so after the first step), on the group or on one of its backends.
An operation must not pay for that, so the sensors keep it, and whatever sets it is wrapped: they then ask all groups.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

_MARK = "_whichrank_watched"


def watch(opened: Callable[[Any], object], retimed: Callable[[], object], closed: Callable[[Any], object]) -> None:
    """Follow the process groups of this process; once per process.

    `opened(group)` is called after a `ProcessGroup` is made, `retimed()` after any was given another timeout, and
    `closed(group)` before one is shut down.

    None of them may change what the program sees: an exception is said once, and then it is left alone.
    """
    from torch._C._distributed_c10d import ProcessGroup
    from torch.distributed import distributed_c10d

    report_opened, report_retimed, report_closed = _harmless(opened), _harmless(retimed), _harmless(closed)

    def result_is_group(result: Any) -> None:
        group = result[0] if isinstance(result, tuple) else result
        if isinstance(group, ProcessGroup):
            report_opened(group)

    _wrap(distributed_c10d, "_new_process_group_helper", after=result_is_group)
    _wrap(ProcessGroup, "split_group", after=result_is_group)
    _wrap(ProcessGroup, "merge_remote_group", after=result_is_group)
    _wrap(ProcessGroup, "shutdown", before=report_closed)
    for owner, name in _setters_of_timeouts():
        _wrap(owner, name, after=lambda _: report_retimed())


def _setters_of_timeouts() -> Iterator[tuple[Any, str]]:
    """Everything that changes the timeout of a group: torch's function, and the methods of groups and backends."""
    from torch._C import _distributed_c10d
    from torch.distributed import distributed_c10d

    yield distributed_c10d, "_set_pg_timeout"
    yield _distributed_c10d.ProcessGroup, "set_timeout"
    for owner in vars(_distributed_c10d).values():
        if isinstance(owner, type) and issubclass(owner, _distributed_c10d.Backend):
            for name in ("set_timeout", "_set_default_timeout"):
                if name in vars(owner):
                    yield owner, name


def _wrap(
    owner: Any,
    name: str,
    before: Callable[[Any], None] | None = None,
    after: Callable[[Any], None] | None = None,
) -> None:
    original = getattr(owner, name, None)
    if original is None or hasattr(original, _MARK):
        return

    @functools.wraps(original)
    def watched(*args: Any, **kwargs: Any) -> Any:
        if before is not None and args:
            before(args[0])
        result = original(*args, **kwargs)
        if after is not None:
            after(result)
        return result

    setattr(watched, _MARK, True)
    setattr(owner, name, watched)


def _harmless(report: Callable[..., object]) -> Callable[..., None]:
    failed = False

    def reported(*group: Any) -> None:
        nonlocal failed
        if failed:
            return
        try:
            report(*group)
        except Exception as error:
            failed = True
            print(f"whichrank: process groups are no longer followed: {error}", file=sys.stderr)

    return reported
