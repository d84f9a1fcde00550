"""The pictures of an iteration with and without what is slow."""

from __future__ import annotations

import re
from dataclasses import replace

import msgspec
import numpy as np
from incident_cases import SLOW

from whichrank.model.incident import Culprit, Link, Stage
from whichrank.stage.blocks import Blocks, What
from whichrank.surface.report.blocks import iteration_in_blocks

RANK = SLOW.culprits[0].rank


def blocks(slow_s: float) -> Blocks:
    """A rank that computes one microbatch in this time and one in 0.1 s, and one that waits for it."""
    rows = [
        (RANK, What.FORWARD, 0, 0.0, 0.05, True),
        (RANK, What.BACKWARD, 0, 0.05, 0.05 + slow_s, True),
        (RANK, What.BACKWARD, 1, 0.05 + slow_s, 0.15 + slow_s, True),
        (RANK + 1, What.FORWARD, 0, 0.0, 0.05, False),
        (RANK + 1, What.WAITING, -1, 0.05, 0.14 + slow_s, False),
        (RANK + 1, What.TRANSFER, -1, 0.14 + slow_s, 0.15 + slow_s, False),
    ]
    rank, what, batch, since_s, until_s, critical = (np.array(column) for column in zip(*rows, strict=True))
    return Blocks(rank, what, batch, since_s, until_s, critical, 0.15 + slow_s, 0.15 + slow_s, 3)


def page(incident: object = SLOW, mended: tuple[int, ...] = (RANK,)) -> str:
    """The part of a page."""
    found = iteration_in_blocks((blocks(0.3), replace(blocks(0.1), mended=mended)), incident, 8)  # type: ignore[arg-type]
    assert found is not None
    return str(found)


def test_it_says_how_long_both_are_and_of_whom() -> None:
    said = re.sub("<[^>]+>", "\n", page())
    assert "As it was: 450 ms" in said
    assert f"If rank {RANK} were not slow: 250 ms" in said
    assert "2 of 8 ranks are shown." in said


def test_of_several_slow_ranks_it_says_that_all_are_mended() -> None:
    # GIVEN an incident that names one of two ranks that are slow
    said = page(mended=(RANK, RANK + 1))
    # THEN the second chart is not said to be without that one alone
    assert "If no rank were slow: 250 ms" in re.sub("<[^>]+>", "\n", said)


def test_the_block_of_the_verdict_stands_out_and_no_other_one() -> None:
    # GIVEN a verdict that says backward, microbatch 0
    of_phase = msgspec.structs.replace(SLOW, stage=Stage(phase="backward", microbatch=0))
    (bar,) = re.findall(r'<path class="culprit pale" d="([^"]+)"', page(of_phase))
    # THEN one block is drawn as slow, at its place, in the first chart only
    assert bar.count("M") == 1
    assert bar.startswith(f"M{1000 * 0.05 / 0.45:.5g} ")


def test_both_charts_have_one_scale_and_a_path() -> None:
    paths = re.findall(r'<path class="path" d="([^"]+)"', page())
    assert len(paths) == 2
    ends = [
        max(float(begin) + float(width) for begin, width in re.findall(r"M([\d.e-]+) \d+h([\d.]+)", d)) for d in paths
    ]
    assert ends[0] > 995
    assert abs(ends[1] - 1000 * 0.25 / 0.45) < 2


def test_numbers_add_up_to_the_iteration() -> None:
    said = re.sub("<[^>]+>", "\n", page())
    assert re.search(rf"rank {RANK}\n+50\n+400\n+0\n+0\n+450\n", said)
    assert re.search(rf"rank {RANK + 1}\n+50\n+0\n+10\n+390\n+0\n", said)


def test_links_and_several_ranks_are_called_what_they_are() -> None:
    links = (Link(src=RANK, dst=RANK + 1, end="path"), Link(src=RANK + 1, dst=RANK, end="path"))
    slow_links = msgspec.structs.replace(SLOW, culprits=(), links=links)
    assert "If the slow links were as quick as usual" in page(slow_links, ())
    one = msgspec.structs.replace(slow_links, links=links[:1])
    assert "If the link were not slow" in page(one, ())
    two = msgspec.structs.replace(
        SLOW, culprits=(*SLOW.culprits, Culprit(rank=RANK + 1, confidence=0.9, why="is slow"))
    )
    assert "If no rank were slow" in page(two, (RANK, RANK + 1))


def test_without_an_iteration_there_is_no_picture() -> None:
    assert iteration_in_blocks(None, SLOW, 8) is None
