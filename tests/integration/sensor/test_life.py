"""Groups and processes come and go; their rows are given back and their identities stay apart."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import VARIANTS, Ring, finished, launched, text

from whichrank.testbed.demo.ports import free_port

pytestmark = pytest.mark.integration


def named(ring: Ring, desc: str) -> list[dict[str, int]]:
    """Communicators of a description, also closed ones, oldest first."""
    names = ("state", "comm_id", "generation", "issued", "done", "opened_ns")
    found = [{name: int(c[name]) for name in names} for c in ring.seen() if text(c["desc"]) == desc]
    return sorted(found, key=lambda comm: comm["opened_ns"])


@pytest.mark.parametrize("variant", VARIANTS)
def test_groups_are_released_and_told_apart(variant: str, tmp_path: Path, nursery: Path) -> None:
    rings = finished("life", 3, tmp_path, variant, nursery, SECOND_PORT=str(free_port()))
    for ring in rings:
        # 600 groups passed through 256 slots; nobody was refused.
        assert ring.header["dropped_comms"] == 0
        assert sorted(text(c["desc"]) for c in ring.live() if text(c["desc"]) != "FILLER") == ["PAIR", "default_pg"]
        assert ring.in_flight == ring.waits == []
        # One that was made anew has the name and members of the first; only the generation says.
        worlds = named(ring, "default_pg")
        assert [world["generation"] for world in worlds] == [1, 2]
        assert worlds[-1]["comm_id"] != worlds[0]["comm_id"]
        assert [comm["issued"] for comm in named(ring, "THREAD")] == [1]
    for desc in ("default_pg", "PAIR"):
        alive = [named(ring, desc)[-1] for ring in rings]
        assert {comm["state"] for comm in alive} == {1}
        assert len({comm["comm_id"] for comm in alive}) == 1
        assert {comm["generation"] for comm in alive} == {2}
        assert len({comm["issued"] for comm in alive}) == 1
    # The first PAIR was never used by rank 2, and yet it is known there.
    assert [len(named(ring, "PAIR")) for ring in rings] == [2, 2, 2]


@pytest.mark.parametrize("variant", VARIANTS)
def test_memory_is_steady(variant: str, tmp_path: Path, nursery: Path) -> None:
    (ring,) = finished("steady", 1, tmp_path, variant, nursery)
    assert ring.header["ordinal"] > 24_000
    assert ring.in_flight == ring.waits == []
    assert ring.comms["default_pg"]["issued"] == ring.comms["default_pg"]["done"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_restart_by_torchrun_is_another_life(variant: str, tmp_path: Path) -> None:
    # GIVEN a rank that fails in its first life
    with launched("restarted", 2, tmp_path, variant, "--max-restarts=1", TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1") as job:
        rings = job.finish()
    # THEN each life of each rank has a ring, and equal names do not mean equal communicators
    lives = {(ring.rank, int(ring.header["restart_count"])): ring for ring in rings}
    assert sorted(lives) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    ids = {life: int(named(ring, "default_pg")[0]["comm_id"]) for life, ring in lives.items()}
    assert ids[0, 0] == ids[1, 0] != ids[0, 1] == ids[1, 1]
    failed = lives[1, 0].header
    assert text(failed["exception"]).startswith("RuntimeError: first life")
    assert "restarted.py:" in text(failed["exception"])
    assert failed["exception_ns"] > 0
    for rank in (0, 1):
        assert lives[rank, 1].header["closed_ns"] > 0, "a clean end"
        assert lives[rank, 1].header["world_size"] == lives[rank, 1].header["local_world_size"] == 2
        assert text(lives[rank, 1].header["job"]) == "test"
