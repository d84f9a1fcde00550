"""A link that carries less, and a rank that computes more slowly, in one real job over four nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from whichrank.bench.trial import Setup, Trial
from whichrank.demo.nodes import can_be_here

pytestmark = pytest.mark.lab


@pytest.mark.skipif(not can_be_here(), reason="network namespaces need root, ip and tc")
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
