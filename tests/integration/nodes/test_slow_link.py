"""A link that carries less, and a rank that computes more slowly, in one real job over four nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from whichrank.server.times_file import read_times
from whichrank.slow.link_watch import LOST
from whichrank.testbed.bench.setup import Result, Setup
from whichrank.testbed.bench.trial import Trial
from whichrank.testbed.lab.network import can_be_here

pytestmark = pytest.mark.lab


needs_nodes = pytest.mark.skipif(not can_be_here(), reason="network namespaces need root, ip and tc")


Cell = tuple[int, int]


@needs_nodes
def test_a_slow_rank_changes_no_cell_of_the_matrix(tmp_path: Path, nursery: Path) -> None:
    # GIVEN a job over four nodes WHEN a rank of one of them computes half as fast
    result, raised, cells = ran(Setup("slow-compute-nodes", seed=1), tmp_path, nursery)

    # THEN it is named, and data arrive as fast as ever on every way between nodes
    assert result.verdict in ("right", "late"), (result.verdict, result.truth, result.incidents)
    assert (len(cells) >= 4, raised) == (True, set()), cells
    assert not any(incident["links"] for incident in result.incidents)


@needs_nodes
@pytest.mark.parametrize("fault", ["slow-link", "slow-inbound"])
def test_a_limited_link_raises_exactly_its_own_cells(tmp_path: Path, nursery: Path, fault: str) -> None:
    # GIVEN a job over four nodes WHEN what one of them sends, or is sent, is limited
    result, raised, cells = ran(Setup(fault, seed=1, variant="50mbit"), tmp_path, nursery)

    # THEN data arrive slowly on these ways and on no others, whatever acknowledgements come late
    said = Path(result.log).read_text(errors="replace")[-3000:]
    assert result.truth is not None, said
    sources, targets = result.truth["sources"], result.truth["targets"]
    assert {cell for cell in raised if cell[0] not in sources and cell[1] not in targets} == set(), cells
    # AND they are reported, and nothing else is
    reported = {(link["src"], link["dst"]) for incident in result.incidents for link in incident["links"]}
    assert (reported != set(), result.verdict in ("right", "late")) == (True, True), (result.verdict, cells, said)
    assert {link for link in reported if link[0] not in sources and link[1] not in targets} == set(), cells


def ran(setup: Setup, folder: Path, nursery: Path) -> tuple[Result, set[Cell], dict[Cell, float]]:
    """The result; the ways between nodes, by sender and receiver, on which data have arrived slowly; and all, by the
    share of the time that they took at the end."""
    result = Trial(setup, folder, nursery=nursery).run()
    links = read_times(folder).links
    cells = {(link.src, link.dst): link.busy for link in links if link.paced}
    return result, {cell for cell, busy in cells.items() if busy >= LOST}, cells


@needs_nodes
def test_a_limited_link_is_reported_beside_a_slow_rank_and_no_other_link(tmp_path: Path, nursery: Path) -> None:
    # GIVEN a job over four nodes WHEN what one of them sends is limited, and a rank of another is half as fast
    result = Trial(Setup("slow-link-and-compute", seed=3, variant="50mbit"), tmp_path, nursery=nursery).run()
    said = Path(result.log).read_text(errors="replace")[-3000:]

    # THEN that rank is named and no other, and of all links only such as come from that node, by its kernel's word
    assert result.truth is not None, said
    assert result.verdict in ("right", "late"), (result.verdict, result.truth, result.incidents, said)
    links = [link for incident in result.incidents for link in incident["links"]]
    assert {link["src"] for link in links} <= set(result.truth["sources"])
    assert {link["end"] for link in links} == {"path"}
    assert {c["rank"] for incident in result.incidents for c in incident["culprits"]} >= set(result.truth["culprits"])
