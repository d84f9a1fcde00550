"""whichrank itself, on the tape: its words are the same as live, and the time of a snapshot can be taken."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from whichrank.analyzer import Analyzer
from whichrank.config import AnalyzerConfig
from whichrank.testbed.bench.methods.word import Word
from whichrank.wire.tape import Tape


def words_of(tape: Path) -> list[Word]:
    """Each alert of a run, when it first named what it names, and what that snapshot took.

    Raises:
        IncompleteDataError: The tape cannot be read.
        FormatError: It is no tape.
    """
    recorded = Tape(tape)
    config = msgspec.convert(recorded.head.settings, AnalyzerConfig)
    analyzer = Analyzer(config, recorded.head.job, utc_offset_s=recorded.head.utc_offset_s, is_live=True)
    words: dict[tuple[object, ...], Word] = {}
    for entry in recorded:
        begun_s = time.perf_counter()
        if entry.batch is not None:
            analyzer.feed(entry.batch, entry.now_s)
            analyzer.orders(entry.batch.agent)
            continue
        said = analyzer.tick(entry.now_s) if entry.kind == "tick" else analyzer.finish(entry.now_s)
        took_ms = 1e3 * (time.perf_counter() - begun_s)
        for incident in said:
            if incident.severity == "alert":
                ranks = tuple(sorted(c.rank for c in incident.culprits))
                links = tuple(sorted((link.src, link.dst) for link in incident.links))
                kind = "slow" if incident.kind == "slow" else "hang"
                word = Word(round(entry.now_s, 3), round(took_ms, 3), kind, ranks, links, incident.fault_class)
                words.setdefault((incident.id, ranks, links), word)
    return list(words.values())
