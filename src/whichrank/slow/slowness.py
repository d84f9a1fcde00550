"""Slow, live: keeps the latest iterations of a job, asks who takes too long, and whether it delays anybody.

A snapshot is cheap: columns of the window and their medians. Only where there is a suspect are some iterations gone
through again with its times as they should be (`locate.critical_path`). What is reported was so in two snapshots; what
is over has not been so for half a window.

On devices the host runs far ahead of what it issues, so its waits say little: there nothing is claimed here.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from whichrank.detect.lately import LostLately
from whichrank.detect.nobody import all_slower, long_stage, moving
from whichrank.detect.own_times import MOST_PENDING, Iterations
from whichrank.detect.slow import (
    LEAST,
    PART,
    Past,
    Suspect,
    beyond_past,
    beyond_peers,
    beyond_ring,
    class_of,
)
from whichrank.detect.tied import tied
from whichrank.locate.comparable import LongGroup
from whichrank.locate.critical_path import Course, Repaired, as_all_usually, as_its_peers
from whichrank.locate.selftime import does_more_by_design, excess_of
from whichrank.locate.workload import work_of
from whichrank.model.codes import Status
from whichrank.model.finding import Finding
from whichrank.model.incident import Reason, Spent
from whichrank.model.iterations import Bools, Excess, Floats, Ints, Window
from whichrank.model.picture import Picture
from whichrank.model.sensors import runs_on_device
from whichrank.model.signature import mix
from whichrank.model.stable_hash import stable_hash
from whichrank.slow.cost import Cost
from whichrank.slow.effect import EFFECT, has_effect
from whichrank.slow.fed_rows import given_of, ops_of, passes_of, steps_of
from whichrank.slow.findings import (
    KeyedFinding,
    key_of,
    of_all,
    of_imbalance,
    of_rank,
    of_stage,
    of_tied,
    of_unexplained,
    times_of,
)
from whichrank.slow.latest_ops import REPLAYED, LatestOps
from whichrank.slow.link_cost import LinkCost
from whichrank.slow.link_watch import LinkWatch
from whichrank.slow.loader_share import LoaderShare
from whichrank.slow.node_usage import NodeUsage, Rates
from whichrank.slow.parts import part_of
from whichrank.slow.reasons import Why, why_all_slow, why_longer, why_slow, why_uneven
from whichrank.slow.steady_findings import SteadyFindings
from whichrank.slow.track import Track
from whichrank.slow.turns import Turns
from whichrank.store.store import Fed, Store

POLLS: Final = 8
"""In each window."""
POLL_S: Final = 0.5
"""Seconds between two judgements, at least."""
MOST_SUSPECTS: Final = 16
"""That are reported one by one."""
STARVED: Final = 0.1
"""Seconds per second for which a rank has no CPU, beyond most ranks, from which it gets less than most."""
HELD_BACK: Final = 0.5
"""Seconds per second for which a rank is throttled, from which its transfers are as slow as its computation."""
UNEVEN: Final = 0.15
"""The same for work that is uneven."""
UNEXPLAINED: Final = 1.25
"""Times what iterations took before, from which it is said that they take longer though nothing explains it. Machines
that are shared do as much by themselves for a tenth."""
MOST_TIMES: Final = 4096
"""Ranks of which it is reported where their time goes."""
TIMES_OPS: Final = 1 << 13
"""Operations by which that is found out: it is done four times a minute."""
MEASURED: Final = 1 << 15
"""Operations that are measured at once: of more the columns do not fit into a cache."""
BACK: Final = 2
"""Windows that are looked at for what comes and goes."""


class Slowness:
    """Slow ranks of one job.

    Args:
        window_s: Seconds over which a slowdown is judged.

    Attributes:
        long_groups: Communicators that took longer than comparable ones when iterations last did for no known reason.
        repaired: The latest iterations with and without what is slow now; None where nothing is, or it is not known.
    """

    def __init__(self, window_s: float) -> None:
        self.window_s = window_s
        self.iterations = Iterations()
        self._latest = LatestOps()
        self._polled_s = 0.0
        self._learned_s = self._judged_s = 0.0
        self._kinds = np.zeros(0, np.uint64)
        self._device: NDArray[np.bool_] = np.zeros(0, np.bool_)
        self._measure_at = MEASURED
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Nothing is known of how the job was."""
        window_s = self.window_s
        self.past = Past()
        self.usage = NodeUsage()
        self.links = LinkWatch(window_s)
        self._sound: set[int] = set()  # ranks that were as quick as their peers for a while
        self.track = Track()
        self.long_groups: list[LongGroup] = []
        self.repaired: Repaired | None = None
        self._loader = LoaderShare()
        self._reported = SteadyFindings(window_s)
        self._lately = LostLately()
        self._turns = Turns(window_s)
        self._latest_course: Course | None = None
        self._course_is_known = False
        self._newest = -1
        self._iteration_s = 0.0
        self._times: tuple[Spent, ...] = ()
        self._times_due: tuple[Store, Window] | None = None
        """The window that they are to be made of, if somebody asks for them."""

    # ---- in --------------------------------------------------------------------------------------------------------

    def feed(self, store: Store, fed: Fed) -> None:
        """Take what was completed."""
        self._learn_comms(store)
        if self._device.all():
            return  # nothing would be claimed
        ops, steps = ops_of(fed.done.those(fed.done["status"] == Status.DONE), store.comms), steps_of(fed.steps)
        self.iterations.feed(ops, steps, given_of(fed.given))
        self._latest.keep_steps(steps)
        self._latest.keep_passes(passes_of(fed.passes))
        if self.iterations.pending > self._measure_at:  # of many ranks more come between two snapshots than can be kept
            self._measure()

    def see(self, states: np.ndarray[Any, Any]) -> None:
        """Take the states of ranks: rows of RANK_ROW, no rank twice."""
        self.usage.see(states)

    def forget(self) -> None:
        """A rank's process was replaced: it counts from one again, may be elsewhere, and so may others be."""
        self.iterations.forget()
        self._latest.forget()
        self._begin_anew()

    def _measure(self) -> None:
        self._latest.keep_ops(self.iterations.measure(self._kinds), self.iterations.newest)
        pending = self.iterations.pending
        self._measure_at = min(pending + max(MEASURED, pending // 2), MOST_PENDING - 1)

    # ---- out -------------------------------------------------------------------------------------------------------

    def examine(self, store: Store, picture: Picture, now_s: float) -> list[tuple[str, Finding]]:
        """What is slow now, as far as something new is known.

        Returns:
            Each with a key that stays the same from snapshot to snapshot.
        """
        if now_s < self.due_s:
            return []
        self._polled_s = now_s
        self.usage.sample(store.ranks.rows)
        self.links.sample(store)
        self._measure()
        ranks = np.flatnonzero(picture.present & ~picture.gone)
        window = self.iterations.window(ranks, BACK * self.window_s, LEAST, REPLAYED)
        if window is None:
            self.links.begin_anew()
            return []
        if int(window.iteration[-1]) <= self._newest:
            self.links.let_time_pass(now_s)
            return []
        self._newest = int(window.iteration[-1])
        self.track.feed(window, float(store.ranks.offset_s[int(window.ranks[0])]))
        self._iteration_s = window.iteration_s
        self._latest_course, self._course_is_known = None, False
        found = self._answer(store, window, now_s)
        self._owe_times(store, window)
        may_be_reported = self._reported.take(found, now_s)
        self._loader.keep(lambda rank: key_of(rank) in found or not self._reported.is_over(key_of(rank)))
        return [(reported.key, reported.finding) for reported in may_be_reported]

    def at_rest(self, store: Store, picture: Picture) -> list[tuple[str, Finding]]:
        """What is slow in a recording that is over, judged over all of it; keys as in `snapshot`."""
        self._measure()
        window = self.iterations.window(np.flatnonzero(picture.present), np.inf, LEAST)
        if window is None or self._on_device(window):
            return []
        self.usage.sample(store.ranks.rows)
        self.window_s, self._iteration_s = window.lasted_s / BACK, window.iteration_s
        self._latest_course, self._course_is_known = None, False
        found = list(self._answer(store, window, picture.now_s).values()) or self._uneven(store, window)
        self._owe_times(store, window)
        return [(reported.key, reported.finding) for reported in found]

    def _uneven(self, store: Store, window: Window) -> list[KeyedFinding]:
        """Iterations that would be shorter if the same piece of work took all who do it as long, always."""
        course = self._course(store, window)
        if course is None:
            return []
        both = course.ends_of_each((course.own_s, as_all_usually(course, window.position)))
        now_s, even_s = (course.pace(ends) for ends in both)
        if not now_s - even_s >= EFFECT * even_s:
            return []
        return [of_imbalance(store, window, excess_of(window), now_s, even_s, Why())]

    @property
    def due_s(self) -> float:
        """When it is looked at next, if something new is known by then; never where all is on devices."""
        return np.inf if self._device.all() else self._polled_s + max(self.window_s / POLLS, POLL_S)

    @property
    def is_in_doubt(self) -> bool:
        """Whether a rank is slow for a reason that is looked for."""
        return bool(self._loader)

    def want_profiles(self, store: Store, now_s: float) -> tuple[list[int], float]:
        """Ranks whose main thread should be sampled, since that would say whether they wait for data; for how long."""
        return self._loader.want(store, self._iteration_s, now_s)

    def is_over(self, key: str) -> bool:
        """Has this not been so for half a window?"""
        return self._reported.is_over(key)

    def _answer(self, store: Store, window: Window, now_s: float) -> dict[str, KeyedFinding]:
        if self._on_device(window):
            return {}
        excess = excess_of(window)
        # Of short iterations not so many are kept that they fill a window.
        window_s = min(self.window_s, self.iterations.kept * window.iteration_s / BACK)
        suspects = self._beyond_peers(window, excess, window_s)
        course = self._course(store, window) if suspects else None
        if course is not None:
            excess = excess_of(window, work_of(course, window.position))
            suspects = self._beyond_peers(window, excess, window_s)
        against_past = beyond_past(window, excess, self.past, window_s, suspects)
        without_peers = {suspect.index for suspect in against_past}
        suspects = [suspect for suspect in suspects if suspect.index not in without_peers] + against_past
        suspects += [s for s in beyond_ring(window, excess, window_s) if s.index not in without_peers]
        before = self._reported.ranks  # of many that are slow alike always the same
        suspects.sort(key=lambda s: (window.ranks[s.index] not in before, -s.excess_s))
        recent = window.last(window_s, LEAST)
        if recent.lasted_s >= window_s * PART:
            self._sound.update(np.delete(window.ranks, [s.index for s in suspects]).tolist())
        reported = self._still(window, suspects, now_s)
        if suspects and not reported:
            course = self._course(store, window)
            if course is not None:
                reported = self._judge(store, window, course, suspects)
                self._judged_s = now_s
        slow = {rank for one in reported for rank in one.ranks}
        take_turns = self._turns.take(slow, {int(window.ranks[s.index]) for s in suspects}, now_s)
        if take_turns:
            reported = []
        transfers, starved = self.links.transfers(), self._starved(recent)
        cost = LinkCost(window, lambda: self._course(store, window), self.past.iteration_s)
        links = self.links.examine(store, recent, transfers, starved, now_s, cost)
        if cost.repaired:
            now, then = cost.repaired
            since = now.since(links[0].finding.iteration or 0, int(window.iteration[-1]))
            self.repaired = Repaired(now, then, since, *self._about(window))
        reported += links
        if not reported and recent.lasted_s >= window_s * PART:  # the first iterations are like no later one
            reported = self._nobody(store, recent, excess.last(len(recent.iteration)), take_turns=take_turns)
            self.long_groups = []
            reported = reported or self._unexplained(store, recent, now_s)
        if not reported:
            self.repaired = None
        if not suspects and not reported:
            is_due = now_s - self._learned_s >= self.window_s
            self.links.learn(transfers, only_new=not is_due)
            if is_due:
                course = self._course(store, window)
                transfer_s = course.lost_in_collectives()[1] if course else np.inf
                self.past.learn(recent, self._rates(recent, 0).without_cpu(), transfer_s)
                self._learned_s = now_s
        return {one.key: one for one in reported}

    def _beyond_peers(self, window: Window, excess: Excess, window_s: float) -> list[Suspect]:
        """Ranks that are longer than their peers; or else such as a limit on their CPU time holds back."""
        if suspects := beyond_peers(window, excess, window_s, self._lately):
            return suspects
        return [
            suspect
            for suspect in beyond_peers(window, excess, window_s, self._lately, are_held=True)
            if self._reason(window, suspect, in_loader=0.0).reason == Reason.CPU_LIMIT
        ]

    def _still(self, window: Window, suspects: list[Suspect], now_s: float) -> list[KeyedFinding]:
        """What was reported before, if it is of the same ranks and not long ago: to judge it again costs more."""
        keys = {key_of(int(window.ranks[s.index])) for s in suspects[:MOST_SUSPECTS]}
        before = self._reported.latest(keys)
        again_s = self.window_s / (POLLS if self._loader else 2)
        return before if len(before) == len(keys) and now_s - self._judged_s < again_s else []

    def _judge(self, store: Store, window: Window, course: Course, suspects: list[Suspect]) -> list[KeyedFinding]:
        """Which suspects delay the job: each is put back beside all the others as they should be.

        Whether one does is judged over all iterations that are gone through and in which it is too long. What is
        reported of it counts from its onset, as its own time does: else its own time would be longer than the iteration
        that it is part of.
        """
        all_well = self._all_as_usual(window, course, suspects)
        judged = suspects[:MOST_SUSPECTS]
        with_each = (np.where(course.rank == suspect.index, course.own_s, all_well) for suspect in judged)
        now, best, *each_alone = course.ends_of_each(chain((course.own_s, all_well), with_each))
        reported: dict[int, KeyedFinding] = {}
        slow = window.ranks[[s.index for s in judged]].tolist()
        kind = class_of(*course.lost_in_collectives(), self.past)
        about, last = self._about(window), int(window.iteration[-1])
        passes = about[0]
        for suspect, alone in zip(judged, each_alone, strict=True):
            began = course.since(int(window.iteration[suspect.onset - suspect.before]), last)
            costs = has_effect(suspect, best, alone, began)
            if not costs and not course.pace(now) >= (1 + EFFECT) * self.past.iteration_s:
                continue
            why = self._why(window, suspect, [s.index for s in suspects])
            before_s = self._before_limit(window, suspect, why, course.pace(now))
            if not costs and before_s is None:
                continue
            since = course.since(int(window.iteration[suspect.onset]), last)
            now_s, usual_s, alone_s = (course.pace(ends, since) for ends in (now, best, alone))
            cost = Cost(now_s, usual_s if before_s is None else min(usual_s, before_s), alone_s, len(suspects) > 1)
            may_be_meant = why.reason is None and int(window.ranks[suspect.index]) not in self._sound
            meant = may_be_meant and does_more_by_design(window, suspect.index, [s.index for s in suspects])
            in_data = why.reason is Reason.DATA_WAIT
            part = None if in_data else part_of(store, window, course, suspect, since, slow, passes)
            reported[suspect.index] = of_rank(
                store, window, suspect, why, cost, course.spent(since), kind, part, slow=slow, meant=meant
            )
        unexplained = [s for s in suspects if s.index in reported and reported[s.index].finding.reason is None]
        for group in tied(window, unexplained):
            if all(not self._reported.is_over(reported[s.index].key) for s in group):
                continue  # each was named when they were not alike, and is not taken back
            both = of_tied([reported.pop(suspect.index) for suspect in group])
            reported[group[0].index] = both
        if reported:
            begun = min(int(window.iteration[suspect.onset]) for suspect in judged)
            self.repaired = Repaired(course, replace(course, own_s=all_well), course.since(begun, last), *about)
        return list(reported.values())

    def _before_limit(self, window: Window, suspect: Suspect, why: Why, now_s: float) -> float | None:
        """What iterations took before, if they are longer now and a limit holds the rank back most of the time.

        Who gets no CPU sends and receives slowly too, so that its own time tells little of what it costs.
        """
        if why.reason is not Reason.CPU_LIMIT or not now_s >= (1 + EFFECT) * self.past.iteration_s:
            return None
        throttled = self._rates(window, suspect.onset).throttled[suspect.index]
        return self.past.iteration_s if throttled >= HELD_BACK else None

    def _why(self, window: Window, suspect: Suspect, suspects: list[int]) -> Why:
        """What its node and its stacks say of it, since it began."""
        rank, peers = int(window.ranks[suspect.index]), window.peers_of(suspect.index)
        why = self._reason(window, suspect, self._loader.share(rank))
        sound = window.ranks[peers[~np.isin(peers, suspects)]].tolist()
        self._loader.note(rank, sound[0] if sound else None, is_explained=why.reason is not None)
        return why

    def _reason(self, window: Window, suspect: Suspect, in_loader: float) -> Why:
        rates = self._rates(window, suspect.onset)
        index, usual = suspect.index, np.mean if suspect.comes_and_goes else np.median
        excess = suspect.excess_s / float(usual(window.total_s[index, suspect.onset :]))
        return why_slow(rates, index, window.peers_of(index), int(window.ranks[index]), excess, in_loader)

    @staticmethod
    def _all_as_usual(window: Window, course: Course, suspects: list[Suspect]) -> Floats:
        """Own times with all of these ranks as they should be: as their sound peers are, or as they were."""
        own_s, slow = course.own_s.copy(), np.array([s.index for s in suspects])
        for position in np.unique(window.position[slow]).tolist():
            here = [s for s in suspects if window.position[s.index] == position]
            sound = np.setdiff1d(np.flatnonzero(window.position == position), slow)
            who = np.array([s.index for s in here if s.against == "peers" and len(sound)], np.int64)
            for suspect in here:
                if suspect.index not in who:
                    own_s[course.rank == suspect.index] /= suspect.factor
            if len(who):
                mine = np.isin(course.rank, who)
                own_s[mine] = as_its_peers(course, who, sound)[mine]
        return own_s

    def _nobody(self, store: Store, window: Window, excess: Excess, *, take_turns: bool) -> list[KeyedFinding]:
        """No rank is at fault: the work is uneven, or everything is slower than it was."""
        by_work = float(np.median(excess.by_work_s, axis=1).max(initial=0.0))
        stage = long_stage(window)
        uneven = take_turns or by_work >= UNEVEN * window.iteration_s or moving(window, excess) >= UNEVEN
        course = self._course(store, window) if uneven or stage is not None else None
        if course is not None:
            evened = self._evened(window, excess, course) if uneven else course.own_s
            now_s, even_s = (course.pace(ends) for ends in course.ends_of_each((course.own_s, evened)))
            if now_s - even_s >= UNEVEN * even_s:
                why = why_uneven(self._rates(window, 0), (now_s - even_s) / now_s)
                return [of_imbalance(store, window, excess, now_s, even_s, why)]
            if stage is not None:
                own_s = course.own_s.copy()
                own_s[np.isin(course.rank, stage.members)] /= stage.factor
                even_s = course.replay(own_s)
                if now_s - even_s >= UNEVEN * even_s:
                    return [of_stage(store, window, stage, now_s, even_s)]
        factor = all_slower(window, self.past)
        if factor <= 1.0:
            return []
        why = why_all_slow(self._rates(window, 0), window, self.past, factor)
        return [of_all(store, window, factor, self.past.iteration_s, why)]

    def _unexplained(self, store: Store, window: Window, now_s: float) -> list[KeyedFinding]:
        """Iterations have taken longer for a whole window; all that is known is which communicators take longer."""
        longer = self.track.longer
        if longer is None or now_s - longer.at_s < self.window_s:
            return []
        if longer.after_s < UNEXPLAINED * longer.before_s or window.iteration_s < UNEXPLAINED * longer.before_s:
            return []
        self.long_groups = self._latest.long_groups(window, store.comms.size)
        why = why_longer(self._rates(window, 0), window, self.past, window.iteration_s - longer.before_s)
        return [of_unexplained(store, window, longer, self.long_groups, why)]

    def _starved(self, window: Window) -> Ints:
        """Ranks that get less CPU than most: at what pace they read says nothing of the way to them."""
        rates = self._rates(window, 0)
        without_s = np.nan_to_num(rates.delay) + np.nan_to_num(rates.throttled)
        return window.ranks[without_s >= float(np.median(without_s)) + STARVED]

    def _about(self, window: Window) -> tuple[np.ndarray[Any, Any], Bools, Ints]:
        """Backward passes, which ranks send messages along a pipeline, and the position of each."""
        return self._latest.passes(), window.in_pipeline & (window.ring < 0), window.position

    def _rates(self, window: Window, column: int) -> Rates:
        """What nodes have given to the ranks since this column began."""
        since_ns = window.end_ns[:, column] - (window.total_s[:, column] * 1e9).astype(np.int64)
        return self.usage.rates(window.ranks, since_ns)

    @staticmethod
    def _evened(window: Window, excess: Excess, course: Course) -> Floats:
        """Own times as if in each iteration every rank had taken as long as its position's median."""
        own_s = course.own_s.copy()
        numbers = np.arange(course.iterations) + int(window.iteration[-1]) - course.iterations + 1
        place = np.searchsorted(window.iteration, numbers)
        place[place == len(window.iteration)] = 0
        known = window.iteration[place] == numbers
        own = window.own_s[:, place]
        ratio = np.divide(own - np.maximum(excess.excess_s[:, place], 0.0), own, out=np.ones_like(own), where=own > 0)
        ratio[:, ~known] = 1.0
        return np.asarray(own_s * ratio[course.rank, course.iteration])

    def _owe_times(self, store: Store, window: Window) -> None:
        """They are made when they are asked for; of a large job there are none, and what is large is let go of."""
        self._times_due = (store, window) if len(window.ranks) <= MOST_TIMES else None
        if self._times_due is None:
            self._latest_course, self._course_is_known = None, False

    @property
    def times(self) -> tuple[Spent, ...]:
        """Where the latest iterations went, by rank; empty while that is not known. Made when they are asked for."""
        if self._times_due is not None:
            store, window = self._times_due
            course = self._latest_course
            if not self._course_is_known:
                course = self._latest.course(window, store.comms.size, TIMES_OPS)
            if course is not None:
                self._times = times_of(window.ranks, course.spent())
            self._times_due = None
        return self._times

    def _course(self, store: Store, window: Window) -> Course | None:
        """The latest iterations of the window, as events; ranks in the order of the window."""
        if not self._course_is_known:
            self._latest_course, self._course_is_known = self._latest.course(window, store.comms.size), True
        return self._latest_course

    def _learn_comms(self, store: Store) -> None:
        """Communicators of the same sort get the same number: described and sized alike."""
        new = store.comms.info[len(self._kinds) :]
        sorts = np.array([stable_hash(info.desc, info.size) for info in new], np.uint64)
        self._kinds = np.append(self._kinds, mix(np.ones(len(new), np.uint64), sorts))
        self._device = np.append(self._device, [runs_on_device(info.backend) for info in new]).astype(np.bool_)

    def _on_device(self, window: Window) -> bool:
        """Do these iterations communicate from a device?"""
        return bool(self._device[self._latest.comms()].any())
