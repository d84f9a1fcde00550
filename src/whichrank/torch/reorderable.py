"""Lets ranks change places while they train: each hands its state to the one that takes its place.

Stages and replicas of a job stand on other nodes then: heavy traffic leaves a congested link, and slow ranks come into
one stage. Between two iterations all ranks dump their state to the host, hand it over, build groups and models anew in
the new order, load what came, and hold its checksum against what was sent. If any rank fails in a step, all go on as
they were.

And lets somebody have a checkpoint made: between two iterations all ranks write their states to disk, and another job
goes on from there.

Nothing waits while nobody wants it: ranks agree on one number in each iteration, which is sent an iteration ahead.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from whichrank.errors import UsageError
from whichrank.torch import checkpoints
from whichrank.torch.handing_over import HandingOver
from whichrank.torch.own_places import Mesh, OwnPlaces
from whichrank.torch.state import State, tensors_in

STATE_IS_WHOLE: Final = 3
"""The iteration at which optimizers have their state: they make it in their first step."""


class Stateful(Protocol):
    """What a rank trains."""

    def state_dict(self) -> Any:
        """Everything that another process needs to go on: model, optimizer, position in the data."""

    def load_state_dict(self, state: Any) -> object:
        """Go on from there."""


S = TypeVar("S", bound=Stateful)


class Reorderable(Generic[S]):
    """Of all ranks of a job; make it on all of them, behind `init_process_group`.

    Args:
        build: Makes what a rank trains, with its groups, from the order of ranks: `order[place]` is the rank that is
            there. All ranks call it with the same order.
        mesh: Sizes by name, the slowest first, as of a `DeviceMesh`: `{"pp": 2, "dp": 4}` has places 0 to 3 in the
            first stage. The names `pp` and `dp` are stages and replicas.
        microbatches: That a replica computes in an iteration.

    Raises:
        UsageError: The mesh does not hold all ranks.

    Example:
        ::

            reorderable = Reorderable(Trainer, {"pp": 2, "dp": 4}, microbatches=8)
            for _ in range(steps):
                trainer = reorderable.iteration()
                trainer.step()
    """

    _latest: ClassVar[int] = 0
    """The version that all ranks have agreed on last: what was told of it is done."""

    def __init__(self, build: Callable[[tuple[int, ...]], S], mesh: Mapping[str, int], microbatches: int = 1) -> None:
        import torch
        import torch.distributed as dist

        self._rank, ranks = dist.get_rank(), dist.get_world_size()
        self._build, self._order = build, tuple(range(ranks))
        described = _mesh(mesh, ranks, microbatches)
        self._job: S | None = build(self._order)
        self._checkpoints = checkpoints.told()
        self._told = OwnPlaces(described, self._rank, _size(self._job), saves=self._checkpoints is not None)
        self._handing = HandingOver()
        self._dist, self._votes = dist, dist.new_group(backend="gloo", group_desc="whichrank_places")
        self._ballot = torch.zeros(1, dtype=torch.int64)
        self._version = Reorderable._latest  # of another one that this process had before
        self._told.use(self._version, self._rank, 0.0, failed=False)
        self._vote: Any = None
        self._begun = self._resumed = 0  # iterations, of this job and of the one that it goes on from
        self._took_s = 0.0  # by the latest change of places

    @property
    def order(self) -> tuple[int, ...]:
        """The rank in each place."""
        return self._order

    def resume(self) -> int:
        """Go on from the newest checkpoint; called before the first iteration, on all ranks.

        It is looked for in the folder that whoever started the job has named.

        Returns:
            Iterations that are done; 0: there is no folder, or no checkpoint in it.

        Raises:
            UsageError: It is of a job with another number of ranks, or not all of them can read it. The program should
                end then: some ranks may have loaded it.
        """
        found = self._handing.gather(self._checkpoints.newest() if self._checkpoints else 0)
        if not any(found):
            return 0
        if len(set(found)) > 1 or self._checkpoints is None:
            what = f"ranks see different checkpoints: their newest are of iterations {sorted(set(found))}"
            raise UsageError(what, mend="name the same folder on all nodes: --checkpoints DIR")
        iterations = found[0]
        problem: UsageError | None = None
        try:
            assert self._job is not None
            place = self._order.index(self._rank)
            self._job.load_state_dict(self._checkpoints.load(iterations, place, len(self._order)).state_dict())
        except UsageError as error:
            problem = error
        except Exception as error:  # whatever it is: all ranks must hear of it
            problem = UsageError(f"the checkpoint of iteration {iterations} cannot be loaded: {error}")
        if not self._handing.agree(int(problem is None)):
            raise problem or UsageError(f"another rank cannot load the checkpoint of iteration {iterations}")
        self._resumed = iterations
        return iterations

    def iteration(self) -> S:
        """What this rank trains in the iteration that begins now: another one, where places were changed."""
        if self._vote is not None:
            self._vote.wait()
            if (version := int(self._ballot[0])) != self._version:
                self._version = Reorderable._latest = version
                self._change(version)
        self._begun += 1
        if self._begun == STATE_IS_WHOLE:
            self._told.offer(_size(self._job))
        self._ballot[0] = self._told.newest()
        self._vote = self._dist.all_reduce(self._ballot, self._dist.ReduceOp.MIN, group=self._votes, async_op=True)
        assert self._job is not None
        return self._job

    def _change(self, version: int) -> None:
        began_s, told = time.monotonic(), self._told.of(version)
        if self._handing.agree(int(told.saves)):
            failed = not self._saved(self._resumed + self._begun)
        else:
            places = self._handing.gather(told.place)
            order = tuple(sorted(range(len(places)), key=lambda rank: places[rank]))
            failed = sorted(places) != list(range(len(places))) or not self._changed_to(order)
            self._took_s = self._took_s if failed else time.monotonic() - began_s
        place = self._order.index(self._rank)
        self._told.use(version, place, self._took_s, failed=failed)
        self._told.offer(_size(self._job))

    def _saved(self, iterations: int) -> bool:
        """Whether all states are on disk.

        Args:
            iterations: That are done.
        """
        place, checksum = self._order.index(self._rank), -1
        try:
            assert self._checkpoints is not None
            assert self._job is not None
            self._checkpoints.begin(iterations)
            checksum = self._checkpoints.write(iterations, place, State.of(self._job.state_dict()))
        except Exception as error:  # whatever it is: all ranks must hear of it
            self._say("writes no checkpoint", error)
        checksums = self._handing.gather(checksum)
        is_whole = min(checksums) >= 0
        if is_whole and place == 0:
            try:
                assert self._checkpoints is not None
                self._checkpoints.finish(iterations, [checksums[rank] for rank in self._order])
            except OSError as error:
                self._say("the checkpoint is not whole", error)
                is_whole = False
        return bool(self._handing.agree(int(is_whole)))

    def _changed_to(self, order: tuple[int, ...]) -> bool:
        """Whether all ranks have changed; if not, all are as they were.

        A step in which a rank is killed ends as any operation does of which a member has died.
        """
        old, before, place = self._job, self._order, self._order.index(self._rank)
        is_on_host, state, came = True, None, None
        try:
            assert old is not None
            state_dict = old.state_dict()
            state = State.of(state_dict)
            is_on_host = all(tensor.device.type == "cpu" for tensor in tensors_in(state_dict))
            del state_dict
        except Exception as error:  # whatever it is: all ranks must hear of it
            self._say("stays where it is, its state cannot be taken", error)
        if not self._handing.agree(int(state is not None)) or state is None:
            return False
        moves = order[place] != self._rank
        is_whole = True
        if moves:
            came, is_whole = self._handing.exchange(state, order[place], before[order.index(self._rank)])
        if not self._handing.agree(int(is_whole)):
            return False
        if not is_on_host:
            self._job = old = None  # a device seldom holds two
        made: S | None = None
        try:
            made = self._build(order)
            loaded = came or state
            made.load_state_dict(loaded.state_dict())
            if State.of(made.state_dict()).checksum() != loaded.checksum():
                made = None
                self._say("stays where it is, what was loaded differs from what came", None)
        except Exception as error:
            made = None
            self._say("stays where it is, it cannot be built in the new order", error)
        if self._handing.agree(int(made is not None)) and made is not None:
            self._job, self._order = made, order
            return True
        if old is None:
            old = self._build(before)
            old.load_state_dict(state.state_dict())
        self._job = old
        return False

    def _say(self, what: str, error: Exception | None) -> None:
        import sys

        why = f": {type(error).__name__}: {error}" if error else ""
        with contextlib.suppress(OSError, ValueError):  # the disk may be full on which that lies
            print(f"whichrank: rank {self._rank} {what}{why}", file=sys.stderr, flush=True)


def _mesh(mesh: Mapping[str, int], ranks: int, microbatches: int) -> Mesh:
    strides, stride = dict[str, int](), 1
    for name, size in reversed(list(mesh.items())):
        strides[name] = stride
        stride *= size
    if stride != ranks or min(mesh.values(), default=0) < 1:
        what = f"the mesh {dict(mesh)} has {stride} places, and there are {ranks} ranks"
        raise UsageError(what, mend='Reorderable(build, {"pp": 2, "dp": 4})')
    if microbatches < 1:
        raise UsageError(f"a replica cannot compute {microbatches} microbatches", mend="Reorderable(build, mesh, 8)")
    stages, replicas = (mesh.get(name, 1) for name in ("pp", "dp"))
    return Mesh(ranks, stages, strides.get("pp", 1), replicas, strides.get("dp", 1), microbatches)


def _size(job: Any) -> int:
    """Bytes of its tensors, without taking them anywhere."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors_in(job.state_dict()))
