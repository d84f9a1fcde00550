"""Silent skew, by ranks in the same position: whom to compare, and when.

Asked when a communicator's members, which had been at the same operation in each of its rounds, no longer are.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from whichrank.hang.skews import Skews
from whichrank.locate.signatures import Skew
from whichrank.locate.strays import Stray, lone, stray
from whichrank.model.clause import Witness
from whichrank.model.sequence import Edit, Shapes, Tokens

COMPARED = 4096
"""Operations of each rank, at most."""
FROM_EACH = 4
"""Members asked of each communicator of a rank, and ranks asked about of each communicator."""
LEAST_LASTED = 48
"""Operations, where three iterations are fewer or not known."""
ITERATIONS = 3
"""That must have been as usual since: a log line of one rank is over by then."""
PATIENCE_S = 900.0
"""Seconds after which a communicator is no longer asked about."""
PAUSE_SHARE = 0.1
"""It is asked again after this share of the time that it has been asked for: iterations may be long."""
MOST_KNOWN = 512
"""Ranks whose shapes are remembered."""
AT_ONCE = 16
"""Communicators looked at in one tick."""


class Peers:
    """Compares ranks of one job with those in the same position."""

    def __init__(self, skews: Skews) -> None:
        self._skews = skews
        self._sequences = skews.sequences
        self._pending: dict[int, tuple[float, float]] = {}  # since when, and when to ask next
        self._version = 0
        self._known: dict[tuple[int, int, int], Shapes] = {}  # shapes by rank, first place and last operation

    @property
    def are_in_doubt(self) -> bool:
        """Whether ranks of a communicator may have left each other."""
        return bool(self._pending)

    def watch(self, comms: Iterable[int], now_s: float) -> None:
        """Members of these communicators are no longer at the same operation in the same round."""
        for comm in comms:
            self._pending.setdefault(comm, (now_s, now_s))

    def skews(self, now_s: float) -> list[Skew]:
        """Ranks that left their peers three iterations ago or more, each reported once."""
        found = []
        due = [comm for comm, (_, next_s) in self._pending.items() if next_s <= now_s][:AT_ONCE]
        for comm in due:
            since_s, _ = self._pending.pop(comm)
            key = self._sequences.key_of(comm)
            if self._skews.has_gap(key):
                continue
            members = self._sequences.members_of(key)[:FROM_EACH]
            new = [skew for rank in members if (skew := self.skew_of(rank)) and self._skews.report(skew)]
            found += new
            if not new and now_s - since_s < PATIENCE_S:
                self._pending[comm] = since_s, now_s + PAUSE_SHARE * (now_s - since_s)
        return found

    def skew_of(self, rank: int, least: int | None = None) -> Skew | None:
        """How this rank has left its peers, if that has lasted.

        Args:
            rank: The rank.
            least: Operations since that must be as usual; None: three iterations.
        """
        spans = self._spans(self._peers_of(rank))
        begins = sorted(begin for begin, _ in spans.values())
        # From where most are known; else from where all are, so that one of which little is known narrows nothing.
        for begin in dict.fromkeys((begins[len(begins) // 2], begins[-1])):
            skew = self._skew_since(rank, begin, spans, least)
            if skew:
                return skew
        return None

    def leaves_alone(self, rank: int, ordinal: int) -> bool | None:
        """Has this rank issued an operation where all others, after the same ones, have issued another one?

        Args:
            rank: The rank.
            ordinal: Of its operation.

        Returns:
            None if it has not; else whether its operation does not usually follow on theirs: if it does, the order is
            another one, else operations were left out or added.
        """
        spans = self._spans(self._peers_of(rank))
        begin = max(max(first for first, _ in spans.values()), max(last for _, last in spans.values()) - COMPARED)
        shapes = {r: self._shapes(self._tokens(r)[begin - a :]) for r, (a, b) in spans.items() if begin <= b}
        mine = shapes.pop(rank, np.zeros(0, np.int64))[: max(ordinal - self._skews.shift_of(rank) - begin + 1, 0)]
        theirs = lone(mine, list(shapes.values())) if len(mine) else None
        if theirs is None:
            return None
        return not bool(((mine[:-1] == theirs) & (mine[1:] == mine[-1])).any())

    def _skew_since(self, rank: int, begin: int, spans: dict[int, tuple[int, int]], least: int | None) -> Skew | None:
        """As `skew_of`, by what was issued from this place on."""
        newest = max(last for _, last in spans.values())
        begin = max(begin, newest - COMPARED, self._skews.reported_up_to(rank) - self._skews.shift_of(rank) + 1)
        tokens = {r: self._tokens(r)[begin - a :] for r, (a, b) in spans.items() if a <= begin <= b}
        if rank not in tokens:
            return None
        shapes = {r: self._shapes_since(r, begin, x) for r, x in tokens.items()}
        found = stray(rank, shapes)
        if found is None:
            return None
        period = max(1, *(self._sequences.sequence(r).period for r in tokens))
        if found.lasted < (max(ITERATIONS * period, LEAST_LASTED) if least is None else least):
            return None
        return self._judge(rank, found, tokens, shapes, begin + self._skews.shift_of(rank), period)

    def _judge(
        self, rank: int, found: Stray, tokens: dict[int, Tokens], shapes: dict[int, Shapes], first: int, period: int
    ) -> Skew | None:
        """The stray as an edit of one communicator, if another member of it has gone on as usual."""
        at = found.at
        missing: tuple[int, ...] = ()
        extra: tuple[int, ...] = ()
        if found.shift > 0 or found.either:
            extra = tuple(tokens[rank][at : at + abs(found.shift)].tolist())
        if found.shift < 0 or found.either:
            missing = self._own_tokens(tokens[rank], shapes[rank], shapes[found.peer][at : at + abs(found.shift)])
        keys = {self._sequences.group_of(t) for t in missing + extra}
        if len(keys) != 1 or -1 in keys:
            return None
        key = keys.pop()
        end = at + max(-found.shift, 0) + found.lasted
        usual = shapes[found.peer][:end]
        others = [shapes[m] for m in set(self._sequences.members_of(key)) & shapes.keys() if m != rank]
        # One that has passed the place, as far as it has come: it may be blocked by the very skew.
        passed = at + max(-found.shift, 0)
        if not any(len(x) > passed and np.array_equal(x[:end], usual[: len(x)]) for x in others):
            return None  # nobody of that group is known to differ
        edit = Edit(first + at, missing, extra, period)
        return Skew(rank, key, edit, found.lasted // period, Witness.SAME_POSITION)

    def _tokens(self, rank: int) -> Tokens:
        return self._sequences.sequence(rank).tokens

    def _shapes(self, tokens: Tokens) -> Shapes:
        return self._sequences.shapes_of(tokens)

    def _shapes_since(self, rank: int, begin: int, tokens: Tokens) -> Shapes:
        """The shapes of what a rank has issued from a place on; ranks of a cycle have many peers in common."""
        version = self._sequences.meanings
        if version != self._version or len(self._known) > MOST_KNOWN:
            self._version, self._known = version, {}
        key = rank, begin, self._sequences.sequence(rank).last_ordinal
        if key not in self._known:
            self._known[key] = self._shapes(tokens)
        return self._known[key]

    def _own_tokens(self, tokens: Tokens, shapes: Shapes, wanted: Shapes) -> tuple[int, ...]:
        """What a rank's own token is for each of these shapes; -1 if it has none or several."""
        own = []
        for shape in wanted.tolist():
            values = np.unique(tokens[shapes == shape])
            own.append(int(values[0]) if len(values) == 1 else -1)
        return tuple(own)

    def _spans(self, ranks: list[int]) -> dict[int, tuple[int, int]]:
        """By rank, the first and the last place that is known of it, counted as if it had had no skew."""
        spans = {}
        for r in ranks:
            s, shift = self._sequences.sequence(r), self._skews.shift_of(r)
            spans[r] = s.last_ordinal - len(s.tokens) + 1 - shift, s.last_ordinal - shift
        return spans

    def _peers_of(self, rank: int) -> list[int]:
        """The rank and some others of each of its communicators."""
        sequences = self._sequences
        found = {rank}
        issued = np.unique(sequences.sequence(rank).tokens[-COMPARED:])
        for key in np.unique(sequences.groups_of(issued)).tolist():
            found.update([m for m in sequences.members_of(key)[: FROM_EACH + 1] if m != rank][:FROM_EACH])
        return sorted(found)
