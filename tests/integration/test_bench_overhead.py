"""`whichrank bench overhead`: the figures come as JSON, the talk stays away from stdout."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

pytestmark = pytest.mark.integration

COMMAND = [sys.executable, "-m", "whichrank", "bench", "overhead"]


@pytest.mark.skipif(shutil.which("cc") is None, reason="the ring's cost is measured by a C program")
def test_ring_part_as_json() -> None:
    # WHEN only the ring is measured
    command = [*COMMAND, "--quick", "--only", "ring", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    # THEN stdout is one JSON document with figures, targets and the machine
    assert (done.returncode, done.stderr) == (0, "")
    results = json.loads(done.stdout)
    assert results["schema"] == "whichrank.overhead/1"
    assert results["skipped"] == {}
    assert results["machine"]["cores"] >= 1
    rows = {row["what"]: row for row in results["rows"]}
    assert set(rows) >= {"ring push", "trace ID", "op begin and end"}
    for name in ("ring push", "trace ID"):
        assert 0 < rows[name]["low"] <= rows[name]["median"] <= rows[name]["high"]
        assert rows[name]["limit"]
    assert rows["memory per rank, whole ring"]["verdict"] == "met"


def test_unknown_part_is_a_usage_error() -> None:
    done = subprocess.run([*COMMAND, "--only", "rings"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "there is no part 'rings'" in done.stderr
    assert "--only ring|sensor|agent|analyzer|step" in done.stderr
