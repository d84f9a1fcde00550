"""How each kind of fault is applied: waits for the drawn moment, then gives an order or strikes from outside.

A recipe is plain blocking code in the injector's thread. It returns a `Strike`: who, when, in which iteration; or
None if the job ended first.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from itertools import product

from whichrank.testbed.demo.hub import Hub
from whichrank.testbed.demo.load import PLACE
from whichrank.testbed.demo.network_recipes import broken_path, others_traffic, slower_link
from whichrank.testbed.demo.plan import fitting_sites
from whichrank.testbed.demo.scene import Scene, Strike
from whichrank.testbed.demo.slow import load_of
from whichrank.testbed.demo.strikes import Hogs, cpu_cgroup, memory_cgroup, send

_LINGER_S = 1.0
_STOPPED_S = 8.0
_SLOW_S = 12.0
_MEMORY_MIB = 96
_CGROUP_SEEN_S = 2.5
"""An agent looks every two seconds in which groups a process is."""
_POSTED_ITERATIONS = 20
_TAIL_S = 6.0
_LOG_EVERY, _GATHERED = 10, 5


def at_operation(scene: Scene) -> Strike | None:
    """Tell one rank what to do at one of its operations."""
    if not scene.wait_under_way():
        return None
    fit = scene.plan.variant.sites
    for victim in scene.plan.victims:
        # With GPipe no stage starts a backward before all forwards are done, so each is coupled as later ones are.
        coupled = scene.hub.facts[victim].get("schedule") == "gpipe"
        stage = scene.layout.pp - 1 if coupled else scene.layout.index(victim, "pp")
        places = fitting_sites(scene.hub.sites[victim], fit, stage)
        if places:
            break
    else:
        raise ValueError(f"layout {scene.layout.name} has no operation that is fit for {scene.fault.name} ({fit})")
    iteration = scene.next_iteration()
    every = int(scene.hub.facts[victim].get("log_every", 0))
    if fit.startswith("equal") and every:
        iteration += -iteration % every  # right after a log, since the next one makes a cycle of the skew
    scene.order(victim, iteration, places[int(scene.plan.site * len(places))])
    return scene.wait_until_now(victim)


def in_turn(scene: Scene) -> Strike | None:
    """Make one rank enter two communicators in the opposite order."""
    if not scene.wait_under_way():
        return None
    victim = scene.plan.victims[0]
    scene.order(victim, scene.next_iteration(), "log")
    strike = scene.wait_until_now(victim)
    if strike is not None:
        local = next(role for role in ("tp", "dp", "pp") if scene.layout.degree(role) > 1)
        strike.candidates = scene.layout.members(victim, local)
    return strike


def while_lingering(scene: Scene) -> Strike | None:
    """SIGSTOP a rank that stands between two operations; some recipes continue it."""
    if not scene.wait_under_way():
        return None
    victim = scene.plan.victims[0]
    places = fitting_sites(scene.hub.sites[victim], scene.plan.variant.sites, 0)
    place = places[int(scene.plan.site * len(places))]
    scene.order(victim, scene.next_iteration(), place, "linger", linger_s=_LINGER_S)
    if scene.wait_until_now(victim) is None:
        return None
    pid = scene.hub.connected().get(victim)
    if pid is None or not send([pid], signal.SIGSTOP):
        return None
    strike = scene.strike_now(victim)
    if scene.fault.recovers:
        strike.undo = (_STOPPED_S, lambda: _send_if_connected(scene.hub, [victim], signal.SIGCONT))
    return strike


def by_signal(scene: Scene) -> Strike | None:
    """SIGKILL a rank at any moment of an iteration."""
    victim = scene.plan.victims[0]
    pid = _pid_at_moment(scene, victim)
    if pid is None:
        return None
    strike = scene.strike_now(victim)
    return strike if send([pid], signal.SIGKILL) else None


def out_of_memory(scene: Scene) -> Strike | None:
    """Let a rank allocate in a small memory cgroup; without writable cgroups let it grow, then kill it."""
    if not scene.wait_under_way():
        return None
    victim = scene.plan.victims[0]
    pid = scene.hub.connected().get(victim)
    if pid is None:
        return None
    try:
        cgroup = memory_cgroup(_MEMORY_MIB << 20, scene.cgroup_prefix)
        cgroup.add(pid)
    except OSError:
        scene.order(victim, scene.next_iteration(), 0, limit_mib=2 * _MEMORY_MIB)
        if scene.wait_until_now(victim) is None or not scene.hub.sleep(1.0):
            return None
        strike = scene.strike_now(victim)
        strike.note, strike.reasons = "simulated: no writable memory cgroup", ("signal",)
        _send_if_connected(scene.hub, [victim], signal.SIGKILL)
        return strike
    if not scene.hub.sleep(_CGROUP_SEEN_S):
        cgroup.close()
        return None
    scene.order(victim, scene.next_iteration(), 0)
    waited = scene.wait_until_now(victim)
    if waited is None:
        cgroup.close()
        return None
    waited.keep.append(cgroup)
    return waited


def everyone(scene: Scene) -> Strike | None:
    """Stop all ranks at once, and continue them some seconds later."""
    if not scene.wait_for_moment(scene.plan.victims[0]):
        return None
    strike = scene.strike_now(scene.plan.victims[0])
    ranks = sorted(scene.hub.connected())
    _send_if_connected(scene.hub, ranks, signal.SIGSTOP)
    strike.victims = ()
    strike.undo = (scene.plan.duration_s, lambda: _send_if_connected(scene.hub, ranks, signal.SIGCONT))
    return strike


def from_the_start(scene: Scene) -> Strike | None:
    """Everything was in the settings: wait until the ranks are there."""
    if scene.fault.healthy:
        if not scene.wait_under_way():
            return None
        strike = scene.strike_now(scene.plan.victims[0])
        strike.victims = ()
        return strike
    victim = scene.plan.victims[0]
    return scene.strike_now(victim) if scene.hub.wait_for(lambda: victim in scene.hub.pids) else None


def at_place(scene: Scene) -> Strike | None:
    """Tell one rank of a scenario what to do at the place that the scenario has named."""
    if not scene.hub.wait_for(lambda: len(scene.hub.iterations) == len(scene.plan.victims)):
        return None
    victim = next(rank for rank in scene.plan.victims if scene.hub.facts[rank]["places"])
    places = scene.hub.facts[victim]["places"]
    scene.order(victim, scene.next_iteration(), places[int(scene.plan.site * len(places))])
    return scene.wait_until_now(victim)


def errand(scene: Scene) -> Strike | None:
    """Send healthy ranks on their errands."""
    if not scene.wait_under_way():
        return None
    iteration = scene.next_iteration()
    ranks = scene.plan.victims
    name = scene.fault.name
    reported = ranks[0]
    if name == "late-checkpoint":
        reported = 0
        barrier = scene.plan.variant.name == "barrier"
        for rank in ranks if barrier else (0,):
            params = {"writer": rank == 0, "barrier": barrier, "duration_s": scene.hold_s}
            scene.order(rank, iteration, "iteration", "checkpoint", **params)
    elif name == "rank0-eval":
        reported = 0
        scene.order(0, iteration, "iteration", "evaluate", duration_s=3.0)
    elif name == "log-gather":
        for rank, time in product(ranks, range(_GATHERED)):
            scene.order(rank, iteration + _LOG_EVERY * time, "iteration", "gather-logs", writer=rank == reported)
    elif name == "early-exit":
        for rank in ranks:
            scene.order(rank, iteration, "iteration", "finish", tail_s=0.0 if rank == reported else _TAIL_S)
    else:
        until = iteration + _POSTED_ITERATIONS
        scene.order(reported, iteration, "iteration", "post-receive", source=ranks[1], until=until + 1)
        scene.order(ranks[1], until, "iteration", "send-late", destination=reported)
    strike = scene.wait_until_now(reported)
    if strike is not None:
        strike.victims = ()
    return strike


def drag(scene: Scene) -> Strike | None:
    """Make one rank compute more slowly, or two, or all."""
    if not scene.wait_under_way():
        return None
    name, variant, iteration = scene.fault.name, scene.plan.variant.name, scene.next_iteration()
    victims = scene.plan.victims
    if name == "absorbed":
        victims = tuple(v for v in victims if scene.layout.index(v, "pp") < scene.layout.pp - 1)
    all_of_them, two_of_them = name in ("slow-every-rank", "longer-sequences"), name in ("two-slow", "two-causes")
    chosen = victims if all_of_them else victims[:2] if two_of_them else victims[:1]
    for place, victim in enumerate(chosen):
        scene.order(victim, iteration, PLACE, **load_of(name, variant, second=place == 1 and two_of_them))
    strike = scene.wait_until_now(chosen[0])
    if strike is not None:
        strike.victims = () if scene.fault.healthy or name == "slow-every-rank" else chosen
    return strike


def ahead(scene: Scene) -> Strike | None:
    """Let one rank leave an iteration out."""
    if not scene.wait_under_way():
        return None
    victim = scene.plan.victims[0]
    scene.order(victim, scene.next_iteration(), "iteration")
    return scene.wait_until_now(victim)


def slow_then_stop(scene: Scene) -> Strike | None:
    """Make one rank slow, and stop it some seconds later."""
    if not scene.wait_under_way():
        return None
    victim = scene.plan.victims[0]
    scene.order(victim, scene.next_iteration(), PLACE, **load_of("slow-compute", scene.plan.variant.name))
    strike = scene.wait_until_now(victim)
    if strike is None or not scene.hub.sleep(_SLOW_S):
        return None
    _send_if_connected(scene.hub, [victim], signal.SIGSTOP)
    return strike


def fewer_cpus(scene: Scene) -> Strike | None:
    """Limit one rank's CPU time from outside, or give it company on its core."""
    victim = scene.plan.victims[0]
    pid = _pid_at_moment(scene, victim)
    if pid is None:
        return None
    strike = scene.strike_now(victim)
    if scene.fault.name == "cpu-limit":
        group = cpu_cgroup(float(scene.plan.variant.name), scene.cgroup_prefix)
        strike.keep.append(group)
        group.add(pid)
    else:
        strike.keep.append(Hogs(pid, min(os.sched_getaffinity(pid)), int(scene.plan.variant.name)))
    return strike


def joined(scene: Scene) -> Strike | None:
    """Wait until all ranks are there, and have begun to train."""
    ranks = len(scene.plan.victims)
    if not scene.hub.wait_for(
        lambda: len(scene.hub.connected()) == ranks and scene.hub.iterations.get(ranks - 1, 0) > 0
    ):
        return None
    strike = scene.strike_now(0)
    strike.victims = ()
    return strike


def nothing(scene: Scene) -> Strike | None:
    """Leave the job alone."""
    return from_the_start(scene)


def _pid_at_moment(scene: Scene, rank: int) -> int | None:
    """The rank's process once the drawn moment has come; None if the job ended first, or it has."""
    return scene.hub.connected().get(rank) if scene.wait_for_moment(rank) else None


def _send_if_connected(hub: Hub, ranks: list[int] | tuple[int, ...], number: signal.Signals) -> None:
    pids = hub.connected()
    send([pids[rank] for rank in ranks if rank in pids], number)


RECIPES: dict[str, Callable[[Scene], Strike | None]] = {
    "op": at_operation,
    "turn": in_turn,
    "linger": while_lingering,
    "signal": by_signal,
    "memory": out_of_memory,
    "hello": from_the_start,
    "errand": errand,
    "all": everyone,
    "place": at_place,
    "never": nothing,
    "drag": drag,
    "cpu": fewer_cpus,
    "link": slower_link,
    "path": broken_path,
    "traffic": others_traffic,
    "ahead": ahead,
    "slow-then-stop": slow_then_stop,
    "join": joined,
}
