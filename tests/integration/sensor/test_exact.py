"""Training gives the same bits alone and under `whichrank run`: agent, analyzer, c10d sensor and socket sensor."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest
from jobs import PATIENCE_S, VARIANTS, Job, preloaded, rings_in, started

pytestmark = pytest.mark.integration

RANKS = 2
JOB = preloaded("exact", RANKS)
RUN = [sys.executable, "-m", "whichrank", "run", "--output", "found", "--"]
C10D_STATE = {"cpp": "on", "python": "fallback"}


def digests(job: Job) -> list[str]:
    """What each rank hashed from 200 losses and the final parameters, by rank."""
    return [path.read_text() for path in sorted(job.folder.glob("digest-*"))]


def wait_for_digests(job: Job) -> None:
    """All ranks have trained, and stand at the gate."""
    give_up_s = time.monotonic() + PATIENCE_S
    while len(digests(job)) < RANKS:
        assert job.process.poll() is None, job.wait()
        assert time.monotonic() < give_up_s, "the job hangs"
        time.sleep(0.02)


def alone(folder: Path) -> list[str]:
    with started(JOB, folder, "off", RANKS) as job:
        job.open_gate("end")
        assert job.finish() == []
        return digests(job)


def watched(folder: Path, variant: str) -> list[str]:
    """The same under the real command, and proof that it was observed by everything there is."""
    more = {"WHICHRANK_SHM": str(folder / "shm")}
    if variant == "python":
        more["WHICHRANK_CACHE"] = "/proc/nowhere"  # so the C++ sensor can neither be found nor built
    with started([*RUN, *JOB], folder, "off", RANKS, **more) as job:
        wait_for_digests(job)
        rings = [ring for place in (folder / "shm").iterdir() for ring in rings_in(place)]
        assert [ring.rank for ring in rings] == list(range(RANKS))
        assert all(ring.header["ordinal"] > 400 for ring in rings)
        job.open_gate("end")
        job.finish()
        found = json.loads((folder / "found" / "job.json").read_text())
        assert found["sensors"] == {"c10d": {C10D_STATE[variant]: RANKS}, "socket": {"on": RANKS}}
        assert (found["ranks"], found["incidents"], found["lost_records"]) == (list(range(RANKS)), [], 0)
        return digests(job)


def test_losses_and_parameters_are_bitwise_equal(tmp_path: Path) -> None:
    # GIVEN what 200 steps give when nobody watches
    bare = alone(tmp_path / "off")
    assert len(bare) == RANKS

    # WHEN the same runs under whichrank, with either sensor THEN not a bit is different
    for variant in VARIANTS:
        assert bare == watched(tmp_path / variant, variant), variant
