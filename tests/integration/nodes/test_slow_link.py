"""A link that carries less, and a rank that computes more slowly, in one real job over four nodes."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from whichrank.bench.trial import Result, Setup, Trial
from whichrank.demo.nodes import can_be_here
from whichrank.locate.links import SLOWER
from whichrank.surface.times_file import read_times

pytestmark = pytest.mark.lab


needs_nodes = pytest.mark.skipif(not can_be_here(), reason="network namespaces need root, ip and tc")


@needs_nodes
def test_a_slow_rank_changes_no_cell_of_the_matrix(tmp_path: Path) -> None:
    # GIVEN a job over four nodes WHEN a rank of one of them computes half as fast
    result, cells = ran(Setup("slow-compute-nodes", seed=1), tmp_path)

    # THEN it is named, and no way between nodes is slower than it was beside the others: a busy machine slows all
    assert result.verdict in ("right", "late"), (result.verdict, result.truth, result.incidents)
    assert len(cells) >= 4
    usual = statistics.median(cells.values())
    assert {cell: share / usual for cell, share in cells.items() if share < SLOWER * usual} == {}
    assert not any(incident["links"] for incident in result.incidents)


@needs_nodes
def test_a_limited_link_raises_its_own_cells(tmp_path: Path) -> None:
    # GIVEN a job over four nodes WHEN what one of them sends is limited
    result, cells = ran(Setup("slow-link", seed=1, variant="50mbit"), tmp_path)

    # THEN what its ranks send is slower than it was
    assert result.truth is not None
    assert len(cells) >= 4
    sources = set(result.truth["sources"])
    assert any(share < SLOWER for (src, _), share in cells.items() if src in sources), cells
    # AND nothing else is told: what is sent to them may look slow too, since their answers come late
    assert {link["src"] for incident in result.incidents for link in incident["links"]} <= sources


def ran(setup: Setup, folder: Path) -> tuple[Result, dict[tuple[int, int], float]]:
    """The result, and the rate between nodes at the end in proportion to the best before, by sender and receiver."""
    result = Trial(setup, folder).run()
    _, links = read_times(folder)
    return result, {(link.src, link.dst): link.rate / link.best for link in links if link.best}


@needs_nodes
def test_a_limited_link_is_told_beside_a_slow_rank_and_no_other_link(tmp_path: Path) -> None:
    # GIVEN a job over four nodes WHEN what one of them sends is limited, and a rank of another is half as fast
    result = Trial(Setup("slow-link-and-compute", seed=3, variant="50mbit"), tmp_path).run()
    said = Path(result.log).read_text(errors="replace")[-3000:]

    # THEN that rank is named and no other, and of all links only such as come from that node, by its kernel's word
    assert result.truth is not None, said
    assert result.verdict in ("right", "late"), (result.verdict, result.truth, result.incidents, said)
    links = [link for incident in result.incidents for link in incident["links"]]
    assert {link["src"] for link in links} <= set(result.truth["sources"])
    assert {link["end"] for link in links} == {"path"}
    assert {c["rank"] for incident in result.incidents for c in incident["culprits"]} >= set(result.truth["culprits"])
