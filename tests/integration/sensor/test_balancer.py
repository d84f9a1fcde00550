"""Shares of the work that are changed while a real job trains: it computes the same as with even ones."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jobs import Job, forked

from whichrank.ring.shares import RingShares

pytestmark = pytest.mark.integration

RANKS = 4
EACH = 4
"""Microbatches of a replica that has an even share."""
LARGEST_ERROR = {"float64": 1e-12, "float32": 1e-5}
"""Of a loss, relative to it, over all iterations: what the order of additions makes of rounding."""
PIPELINES = ("pipeline", "megatron-1f1b", "megatron-interleaved")


def said(folder: Path) -> list[dict[str, Any]]:
    return [json.loads((folder / f"said.{rank}").read_text()) for rank in range(RANKS)]


def split(rng: np.random.Generator, replicas: int, multiple: int) -> list[int]:
    """Any split in which each replica has something."""
    parts = EACH * replicas // multiple
    cuts = np.sort(rng.choice(np.arange(1, parts), replicas - 1, replace=False))
    return [int(part) * multiple for part in np.diff([0, *cuts, parts])]


def keep_changing(job: Job, mode: str) -> int:
    """Tell other shares as soon as all ranks use the latest ones, until the job is over; how often."""
    rings = job.until(lambda rings: all(int(ring.raw["shares"]["microbatches"]) for ring in rings), "an offer")
    by_rank = sorted(rings, key=lambda ring: ring.rank)
    told = [RingShares(job.folder / "rings" / f"{ring.pid}.ring") for ring in by_rank]
    rows = [shares.read() for shares in told]
    replica, replicas, multiple = (
        [int(row["replica"]) for row in rows],
        int(rows[0]["replicas"]),
        int(rows[0]["multiple"]),
    )
    assert replica == ([0, 0, 1, 1] if mode in PIPELINES else [0, 1, 2, 3])
    assert {int(row["microbatches"]) for row in rows} == {EACH * replicas}
    rng, version = np.random.default_rng(1), 0
    while job.process.poll() is None:
        if all(int(shares.read()["used"]) == version for shares in told):
            version += 1
            counts = split(rng, replicas, multiple)
            firsts = [0, *np.cumsum(counts)[:-1].tolist()]
            for shares, of in zip(told, replica, strict=True):
                shares.tell(version, firsts[of], counts[of])
    for shares in told:
        shares.let_go()
    return version


@pytest.mark.parametrize(
    ("mode", "dtype"), [("ddp", "float64"), ("ddp", "float32"), ("fsdp2", "float64"), ("pipeline", "float64")]
)
def test_other_shares_change_nothing_of_what_is_computed(mode: str, dtype: str, tmp_path: Path, nursery: Path) -> None:
    train_twice(mode, dtype, tmp_path, nursery)


@pytest.mark.parametrize(
    ("mode", "dtype", "per_token"),
    [
        ("megatron", "float32", ""),
        ("megatron", "float64", "1"),
        ("megatron-1f1b", "float64", ""),
        ("megatron-1f1b", "float64", "1"),
        ("megatron-interleaved", "float64", ""),
    ],
)
def test_other_shares_change_nothing_in_the_schedules_of_megatron(
    mode: str, dtype: str, per_token: str, tmp_path: Path, nursery: Path
) -> None:
    if importlib.util.find_spec("megatron") is None:
        pytest.skip("megatron-core has no wheel for this Python")
    train_twice(mode, dtype, tmp_path, nursery, PER_TOKEN=per_token, ITERATIONS="100")


def train_twice(mode: str, dtype: str, tmp_path: Path, nursery: Path, **more: str) -> None:
    """With even shares and with others: losses and parameters are the same, and all microbatches are computed once."""
    # GIVEN a job that whichrank does not watch, and one of which shares are changed again and again
    even, changed = tmp_path / "even", tmp_path / "changed"
    with forked("balanced", RANKS, even, "off", nursery, MODE=mode, DTYPE=dtype, **more) as job:
        job.finish()
    with forked("balanced", RANKS, changed, "cpp", nursery, MODE=mode, DTYPE=dtype, **more) as job:
        changes = keep_changing(job, mode)
        job.finish()
    assert changes > 10
    # THEN all iterations lose as much, to rounding
    expected, found = said(even), said(changed)
    losses = np.array(expected[0]["losses"])
    assert losses[-3:].mean() < 0.95 * losses[:3].mean()
    difference = np.abs(np.array(found[0]["losses"]) / losses - 1).max()
    trained, trained_even = (np.array([one["trained"] for one in of_all]) for of_all in (found, expected))
    apart = np.abs(trained - trained_even).max() / np.abs(trained_even).max()
    print(f"{mode} {dtype} {more}: losses differ by {difference:.1e}, parameters by {apart:.1e}, n {len(losses)}")
    assert difference < LARGEST_ERROR[dtype]
    # AND all parameters are the same in the end
    assert apart < LARGEST_ERROR[dtype]
    # AND in each iteration all microbatches are computed once, by shares that are not even in most
    one_of_each = found[::2] if mode in PIPELINES else found
    if mode in PIPELINES:
        assert [one["shares"] for one in found[1::2]] == [one["shares"] for one in one_of_each]
    shares = np.array([one["shares"] for one in one_of_each])  # replica, iteration, first and count
    assert (shares[0, :, 0] == 0).all()
    assert (shares[:-1].sum(axis=2) == shares[1:, :, 0]).all()
    assert (shares[-1].sum(axis=1) == EACH * len(one_of_each)).all()
    assert (shares[:, :, 1] != EACH).any(axis=0).mean() > 0.5
