"""Ranks whose state is not known, since their node is silent: is it lost, or do ways to it carry nothing (DESIGN 5.1)?

Silence alone says nothing: an agent may have died. What counts is what the others' kernels say of their connections,
and what came of probing: where all ways to a node are shut for all, it is lost; where some are open, the paths are to
blame and no node is named.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whichrank.model.clause import Says, clause
from whichrank.model.evidence import Evidence
from whichrank.model.finding import Blame, Finding
from whichrank.model.incident import Cause
from whichrank.model.picture import Ints, Picture
from whichrank.store.paths import LISTED, Pair, Paths, dead_words, links_of

ASK_S = 0.8
"""A node that is silent for so long, while ranks wait, is probed."""
UNUSUAL_S = 1.2
"""So long is no agent silent that is well: its node is probed though nobody waits yet."""
GONE_S = 5.0
"""So long after an agent has ended nobody probes its node any more."""
SILENT_S = 1.8
"""Seconds of silence from which a node is probed, where no path has died."""
LEFT_S = 60.0
"""A node that fell silent so long before the oldest wait began has left the job, which went on without it."""
REFERENCES = 2
"""Nodes that are heard and that others probe too, to know whether what probes gets through at all."""
OPEN_SHARE = 0.75
"""Of what probes, if it is answered: fewer, and some of the paths between two nodes are shut."""


@dataclass(frozen=True)
class _Scene:
    """Who is heard, and who is not.

    Attributes:
        node_of: By rank, -1 unknown.
        silence_s: By node.
        quiet: Nodes of which nothing was heard for `ASK_S`.
        heard: The others.
    """

    now_s: float
    node_of: Ints
    silence_s: dict[int, float]
    quiet: list[int]
    heard: list[int]


def probe_early(paths: Paths, picture: Picture, agent_of: Ints) -> None:
    """Let others probe nodes that have fallen silent, so that answers are there by the time ranks wait.

    Args:
        paths: Connections and answers.
        picture: The job.
        agent_of: By rank, the agent that reported it last.
    """
    if picture.now_s - paths.heard_longest_ago_s < UNUSUAL_S:
        return
    scene = _scene(paths, picture, agent_of)
    if quiet := [node for node in scene.quiet if UNUSUAL_S <= scene.silence_s[node] < GONE_S]:
        paths.probe(scene.heard, [*scene.heard[:REFERENCES], *quiet], scene.now_s)


def out_of_reach(paths: Paths, picture: Picture, waiting: Ints, agent_of: Ints) -> Finding | None:
    """A node that is lost, or paths on which nothing comes through, where some ranks are silent; None: nobody is.

    Args:
        paths: Connections and answers.
        picture: The job.
        waiting: Ranks that wait for others.
        agent_of: By rank, the agent that reported it last.
    """
    scene = _scene(paths, picture, agent_of)
    if not scene.quiet:
        return None
    paths.probe(scene.heard, [*scene.heard[:REFERENCES], *scene.quiet], scene.now_s)
    pairs = paths.dead_pairs(picture, waiting)
    on_quiet = np.isin(scene.node_of, scene.quiet)
    if any(not on_quiet[dst] for _, dst, _ in pairs):
        return _shut(paths, scene, pairs)
    is_half = 2 * int(on_quiet.sum()) >= int(picture.present.sum())
    # Half of a job is no lost node, whoever of it may still come back: what the kernels say of paths is reported
    # sooner.
    enough_s = UNUSUAL_S if is_half and pairs else SILENT_S
    silent = [node for node in scene.quiet if scene.silence_s[node] >= enough_s]
    if len(silent) < len(scene.quiet):
        return None
    may_be_lost = len(silent) == 1 and not is_half
    answered = _answered(paths, scene, silent[0]) if may_be_lost else {}
    lost = _everywhere(paths, scene, silent[0], pairs, answered) if may_be_lost else set()
    asks = may_be_lost or not pairs  # else no answer changes what is reported
    # One that probes goes many paths: if all of these are shut, and each other node knows by itself, that is enough.
    all_know = bool(answered) and lost >= set(scene.heard)
    if asks and not all_know and any(paths.probes.outstanding(scene.heard, node, scene.now_s) for node in silent):
        return None
    if len(lost) > 1:
        return _lost(scene, silent[0], pairs, len(lost))
    pairs = pairs or paths.connected(_paths(paths, scene, silent), scene.node_of)
    return _shut(paths, scene, pairs) if pairs else None


def _scene(paths: Paths, picture: Picture, agent_of: Ints) -> _Scene:
    node_of = np.where(picture.present & ~picture.gone, paths.nodes(agent_of), -1)
    silence_s = paths.silence_s(node_of, picture.now_s)
    onset_s = float(picture.waits["since_s"].min(initial=picture.now_s))
    left = [node for node, seconds in silence_s.items() if picture.now_s - seconds < onset_s - LEFT_S]
    node_of[np.isin(node_of, left)] = -1
    silence_s = {node: seconds for node, seconds in silence_s.items() if node not in left}
    quiet = [node for node, seconds in silence_s.items() if seconds >= ASK_S]
    return _Scene(picture.now_s, node_of, silence_s, quiet, [node for node in silence_s if node not in quiet])


def _answered(paths: Paths, scene: _Scene, node: int) -> dict[int, float]:
    """By witness that gets answers from others, the share of what probed this node that was answered."""
    reported = {witness: paths.probes.of(witness, node, scene.now_s) for witness in scene.heard}
    return {
        witness: probe.answered / probe.sent
        for witness, probe in reported.items()
        if probe and paths.probes.gets_answers(witness, scene.now_s)
    }


def _everywhere(paths: Paths, scene: _Scene, node: int, pairs: list[Pair], answered: dict[int, float]) -> set[int]:
    """Nodes that know that they do not reach this one, if nobody does."""
    ends, reported_by = paths.ends(scene.now_s)
    witness = paths.nodes(reported_by)
    there = np.isin(ends.peer, np.flatnonzero(scene.node_of == node)) & (witness != node)
    if any(answered.values()) or (there & ends.answered).any():
        return set()
    if not pairs and not answered:
        return set()
    # Those whose connections are dead or that get no answer, and the analyzer's own, to which the node is silent.
    return {*np.unique(witness[there & ends.dead]).tolist(), *answered, *paths.beside} - {node}


def _paths(paths: Paths, scene: _Scene, silent: list[int]) -> list[tuple[int, int]]:
    """From nodes that are heard to silent ones, where few or none of what probed was answered."""
    return [
        (witness, node)
        for node in silent
        for witness, share in _answered(paths, scene, node).items()
        if share < OPEN_SHARE
    ]


def _shut(paths: Paths, scene: _Scene, pairs: list[Pair]) -> Finding:
    """Nothing comes through between these; on which side of them it is nobody knows."""
    last = [
        Evidence(
            what="its agent was heard last",
            value=round(scene.silence_s[node], 1),
            unit="s ago",
            where=paths.name_of[node],
        )
        for node in scene.quiet[:LISTED]
    ]
    return Finding(
        cause=Cause.TRANSPORT,
        fault_class="H3",
        hard=True,
        seasoned=True,
        links=links_of(pairs),
        evidence=(*dead_words(pairs), *last, *paths.probed(scene.heard, scene.quiet, scene.now_s)),
        complete=False,
        next=(clause(Says.PING),),
    )


def _lost(scene: _Scene, node: int, pairs: list[Pair], witnesses: int) -> Finding:
    """All ranks of a node that nobody reaches."""
    silent_s, ranks = scene.silence_s[node], np.flatnonzero(scene.node_of == node).tolist()
    dead = clause(Says.NO_ANSWER, connections=len(pairs)) if pairs else clause(Says.OUT_OF_REACH)
    why = (clause(Says.NODE_SILENT, silent_s=float(silent_s)), dead)
    return Finding(
        cause=Cause.NODE_LOST,
        culprits=tuple(Blame(rank, 0.9, why) for rank in ranks),
        onset_s=scene.now_s - silent_s,
        hard=True,
        seasoned=True,
        evidence=(
            Evidence(what="its agent was heard last", value=round(silent_s, 1), unit="s ago"),
            Evidence(what="connections that retransmit without an answer", value=len(pairs)),
            Evidence(what="other nodes to which it is out of reach", value=witnesses),
        ),
        complete=False,
    )
