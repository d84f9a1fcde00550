"""Jobs of which all durations are known, as operations for a what-if analysis."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from whichrank.model.step_ops import StepOps
from whichrank.stage.schedules import Phase, one_f_one_b

NAMES = ("forward", "backward", "send", "receive", "reduce gradients")
FORWARD_S, BACKWARD_S, SEND_S, REDUCE_S = 0.1, 0.2, 0.002, 0.05
TP = 4


def job(
    pp: int,
    dp: int,
    microbatches: int,
    steps: int,
    slower: Callable[[np.ndarray, np.ndarray, np.ndarray, int], np.ndarray],
    noise: float = 0.01,
    slow_link: tuple[int, int, float] = (-1, -1, 1.0),
) -> StepOps:
    """A job on 1F1B. One rank of each TP group is traced; rank = TP * (replica + dp * stage).

    Args:
        pp: Pipeline stages.
        dp: Replicas.
        microbatches: Of a step.
        steps: That are traced.
        slower: By stage, replica, microbatch and step, how many times longer a computation takes.
        noise: Of all durations, relative.
        slow_link: The lower stage of a link, its replica, and how many times longer messages take there, both ways.
    """
    rng = np.random.default_rng(0)
    schedule = one_f_one_b(pp, microbatches)
    count, (before, after) = len(schedule.rank), schedule.edges
    is_message = schedule.stage[before] != schedule.stage[after]
    sender, receiver = before[is_message], after[is_message]
    sends = count + np.arange(len(sender))
    receives = sends + len(sender)
    reduces = count + 2 * len(sender) + np.arange(pp)
    last = np.array([schedule.first[stage + 1] - 1 for stage in range(pp)])
    total = int(reduces[-1]) + 1
    stage = np.concatenate((schedule.stage, schedule.stage[sender], schedule.stage[receiver], np.arange(pp)))
    what = np.concatenate((schedule.phase, np.repeat((2, 3), len(sender)), np.full(pp, 4)))
    microbatch = np.concatenate((schedule.microbatch, np.full(total - count, -1)))
    meeting = np.full((dp, total), -1)
    for replica in range(dp):
        meeting[replica, sends] = meeting[replica, receives] = pp + replica * len(sender) + np.arange(len(sender))
        meeting[replica, reduces] = np.arange(pp)
    before = np.concatenate((before[~is_message], sender, receives, last))
    after = np.concatenate((after[~is_message], sends, receiver, reduces))
    usual_s = np.select([what == Phase.FORWARD, what == Phase.BACKWARD, what == 4], [FORWARD_S, BACKWARD_S, REDUCE_S])
    lasted_s = np.empty((steps, dp, total))
    for step, replica in np.ndindex(steps, dp):
        mine = np.where(np.isin(what, (2, 3)), SEND_S, usual_s)
        mine[:count] *= slower(stage[:count], np.full(count, replica), microbatch[:count], step)
        lower, at, times = slow_link
        slow = (np.minimum(schedule.stage[sender], schedule.stage[receiver]) == lower) & (replica == at)
        mine[sends[slow]] *= times
        mine[receives[slow]] *= times
        lasted_s[step, replica] = mine * rng.lognormal(0.0, noise, total)
    offsets = np.arange(dp)[:, None] * total
    replicas = np.repeat(np.arange(dp), total)
    return StepOps(
        rank=TP * (replicas + dp * np.tile(stage, dp)),
        replica=replicas,
        stage=np.tile(stage, dp),
        what=np.tile(what, dp),
        microbatch=np.tile(microbatch, dp),
        names=NAMES,
        meeting=meeting.reshape(-1),
        before=(before + offsets).reshape(-1),
        after=(after + offsets).reshape(-1),
        lasted_s=lasted_s.reshape(steps, -1),
        steps=np.arange(steps),
    )
