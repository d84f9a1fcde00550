"""Nodes for a test; skipped where the machine gives no network namespaces."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.nodes.three_nodes import Nodes

from whichrank.testbed.lab.network import NoLabError


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    made = Nodes(tmp_path)
    try:
        try:
            made.up()
        except NoLabError as error:
            pytest.skip(str(error))
        yield made
    finally:
        made.down()
