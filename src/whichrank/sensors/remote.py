"""Tells the ring which thread waits for the answer of a remote call (torch.distributed.rpc), and of which rank.

A remote call is no c10d operation, so the c10d sensor sees nothing of it, and from outside a thread that waits for an
answer looks like one that does nothing. Here the calls and futures of torch's RPC are wrapped once `init_rpc` is
called; a job without RPC pays nothing. A call costs hundreds of microseconds, and its mark a few.

The target is known where Python makes the call: `rpc_sync`, `rpc_async`, `RRef.to_here` and methods of a reference,
futures that come from these by `then` or `collect_all`. It is not known (-1) in a distributed backward pass. A wait in
TorchScript is not seen.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import weakref
from collections.abc import Callable
from typing import Any, Final

from whichrank.native import load_core, on_ring

UNKNOWN: Final = -1
MOST_TARGETS: Final = 4
"""Ranks that one wait is marked for; a wait for more is marked as one for an unknown rank."""
_MARK: Final = "_whichrank_watched"


def watch(open_ring: Callable[[], object]) -> None:
    """Follow the remote calls of this process from its `init_rpc` on.

    Args:
        open_ring: Makes the ring of this process if it has none.

    Raises:
        NativeLibraryError: The core library is not there.
    """
    rpc = sys.modules.get("torch.distributed.rpc")
    original = getattr(rpc, "init_rpc", None)
    if original is None or hasattr(original, _MARK):
        return
    marks = _Marks(open_ring)

    @functools.wraps(original)
    def init_rpc(
        name: str, backend: Any = None, rank: int = -1, world_size: Any = None, *rest: Any, **named: Any
    ) -> Any:
        marks.unless_failed(lambda: marks.introduce(rank, world_size))
        result = original(name, backend, rank, world_size, *rest, **named)
        marks.unless_failed(marks.follow)
        return result

    setattr(init_rpc, _MARK, True)
    rpc.init_rpc = init_rpc  # type: ignore[union-attr]


class _Marks:
    """The wait marks of this process, and whom each future comes from."""

    def __init__(self, open_ring: Callable[[], object]) -> None:
        core = load_core()
        self._core = core
        self._set_rank = on_ring(core, "wr_ring_set_rank", ctypes.c_int32, ctypes.c_int32)
        self._open_ring = open_ring
        self._failed = False
        self._knows_ranks = True
        self._targets: weakref.WeakKeyDictionary[Any, frozenset[int]] = weakref.WeakKeyDictionary()

    def unless_failed(self, step: Callable[[], object]) -> None:
        """A step of ours. A fault there ends the marks, and not the program."""
        if self._failed:
            return
        try:
            step()
        except Exception as error:
            self._failed = True
            print(f"whichrank: remote calls are not followed: {error}", file=sys.stderr)

    def introduce(self, rank: Any, world_size: Any) -> None:
        """Make the ring, if no launcher has given this process its rank: RPC says it."""
        if not isinstance(rank, int) or rank < 0:
            return
        from torch import distributed

        reported, size = os.environ.get("RANK", ""), world_size if isinstance(world_size, int) else -1
        if reported.isdigit():
            self._knows_ranks = int(reported) == rank  # else numbers of workers are no ranks
        elif distributed.is_initialized() and distributed.get_world_size() >= size:
            self._knows_ranks = distributed.get_rank() == rank  # the process group has reported it already
        else:
            self._open_ring()
            self._set_rank(rank, size)

    def follow(self) -> None:
        """Wrap what calls and what waits. What a torch does not have is left out."""
        import torch
        from torch.distributed import autograd
        from torch.distributed.rpc import api, rref_proxy

        future = torch._C.Future
        self._wrap(api, "_invoke_rpc", self._called)
        self._wrap(future, "then", self._derived)
        self._wrap(future, "wait", self._awaited)
        self._wrap(torch._C, "_collect_all", self._collected)
        self._wrap(autograd, "backward", self._propagated)
        remote = getattr(torch._C, "_distributed_rpc", None)
        if remote is not None:
            self._wrap(remote.PyRRef, "to_here", self._fetched)
            self._wrap(remote.PyRRef, "_get_type", self._called_of_reference)
            self._wrap(rref_proxy, "_invoke_rpc", self._called_of_reference)

    def _wrap(self, owner: Any, name: str, around: Callable[..., Any]) -> None:
        original = getattr(owner, name, None)
        if original is None or hasattr(original, _MARK):
            return

        @functools.wraps(original)
        def wrapped(*arguments: Any, **named: Any) -> Any:
            if self._failed or not arguments:
                return original(*arguments, **named)
            return around(original, *arguments, **named)

        setattr(wrapped, _MARK, True)
        setattr(owner, name, wrapped)

    # ---- whom a future comes from ------------------------------------------------------------------------------------

    def _called(self, call: Callable[..., Any], to: Any, /, *rest: Any, **named: Any) -> Any:
        future = call(to, *rest, **named)
        self.unless_failed(lambda: self._note(future, frozenset((self._worker(to),))))
        return future

    def _called_of_reference(self, call: Callable[..., Any], reference: Any, /, *rest: Any, **named: Any) -> Any:
        result = call(reference, *rest, **named)
        self.unless_failed(lambda: self._note_of_reference(result, reference))
        return result

    def _note_of_reference(self, result: Any, reference: Any) -> None:
        import torch

        if isinstance(result, torch._C.Future) and not reference.is_owner():
            self._note(result, frozenset((self._worker(reference.owner()),)))

    def _derived(self, call: Callable[..., Any], this: Any, /, *rest: Any, **named: Any) -> Any:
        future = call(this, *rest, **named)
        self.unless_failed(lambda: self._note(future, self._targets.get(this, frozenset())))
        return future

    def _collected(self, call: Callable[..., Any], futures: Any, /, *rest: Any, **named: Any) -> Any:
        future = call(futures, *rest, **named)
        self.unless_failed(
            lambda: self._note(
                future, frozenset(rank for one in futures if not one.done() for rank in self._targets.get(one, ()))
            )
        )
        return future

    def _note(self, future: Any, ranks: frozenset[int]) -> None:
        if ranks:
            self._targets[future] = ranks

    def _worker(self, to: Any) -> int:
        """The rank of a worker, which calls name by its name, number or WorkerInfo."""
        if not self._knows_ranks:
            return UNKNOWN
        if isinstance(to, str):
            from torch.distributed import rpc

            to = rpc.get_worker_info(to)
        return int(getattr(to, "id", to))

    # ---- waits -------------------------------------------------------------------------------------------------------

    def _of(self, future: Any) -> tuple[int, ...]:
        ranks = self._targets.get(future)
        if not ranks or future.done():
            return ()
        return tuple(sorted(ranks)) if len(ranks) <= MOST_TARGETS else (UNKNOWN,)

    def _known(self, ranks: Callable[[], tuple[int, ...]]) -> tuple[int, ...]:
        """What is found out, or nobody where a fault of ours is in the way."""
        found: list[tuple[int, ...]] = []
        self.unless_failed(lambda: found.append(ranks()))
        return found[0] if found else ()

    def _fetched(self, call: Callable[..., Any], this: Any, /, *rest: Any, **named: Any) -> Any:
        def owner() -> tuple[int, ...]:
            return () if this.is_owner() else (self._worker(this.owner()),)

        return self._waited(call, self._known(owner), this, *rest, **named)

    def _awaited(self, call: Callable[..., Any], this: Any, /, *rest: Any, **named: Any) -> Any:
        return self._waited(call, self._known(lambda: self._of(this)), this, *rest, **named)

    def _propagated(self, call: Callable[..., Any], /, *rest: Any, **named: Any) -> Any:
        return self._waited(call, (UNKNOWN,), *rest, **named)

    def _waited(self, call: Callable[..., Any], ranks: tuple[int, ...], /, *arguments: Any, **named: Any) -> Any:
        """Run `call`, which blocks until these have answered, under wait marks."""
        ring = self._core.wr_process_ring() if ranks else None
        if not ring:
            return call(*arguments, **named)
        rows = [self._core.wr_remote_wait_begin(ring, rank) for rank in ranks]
        try:
            return call(*arguments, **named)
        finally:
            if self._core.wr_process_ring() == ring:  # not after a fork or a switch-off
                for row in rows:
                    self._core.wr_outside_wait_end(ring, row)
