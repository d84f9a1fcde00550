"""Records anew what `test_kept_verdicts` keeps, as after a change of the wire format, and keeps the runs that agree.

    python tests/kept/record.py            all of demo, matrix and slow, one seed: about an hour
    python tests/kept/record.py stop kill  only these faults

Tapes of before that cannot be read any more are to be removed first. A run whose verdict does not agree with what was
done to it is not kept, and said.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from whichrank.testbed.bench.campaign import demo_plan, matrix_plan, slow_plan
from whichrank.testbed.bench.nursery import Nursery
from whichrank.testbed.bench.setup import Setup
from whichrank.testbed.bench.trial import Trial
from whichrank.wire.tape import FILE_NAME

KEEP = Path(__file__).with_name("keep.py")


def setups(faults: list[str]) -> dict[str, Setup]:
    """What to run, by the name of its tape."""
    found: dict[str, Setup] = {}
    for kind, plan in (("demo", demo_plan(1)), ("matrix", matrix_plan(1)), ("slow", slow_plan(1))):
        for setup in plan:
            if setup.launcher == "preloaded" and (not faults or setup.fault in faults):
                fault = setup.fault.removeprefix(f"{kind}-")
                words = [kind, fault, str(setup.seed), setup.variant, setup.layout, *setup.job_args]
                found["-".join(word.strip("-") for word in words if word)] = replace(setup, record=True)
    return found


def main() -> None:
    """Run, and keep."""
    wanted = setups(sys.argv[1:])
    if not wanted:
        sys.exit(f"no fault is called {' or '.join(sys.argv[1:])}")
    with tempfile.TemporaryDirectory(prefix="whichrank-kept-") as base, Nursery() as nursery:
        kept: list[str] = []
        for number, (name, setup) in enumerate(wanted.items(), 1):
            folder = Path(base) / name
            result = Trial(setup, folder, nursery=nursery.path).run()
            print(f"{number}/{len(wanted)} {name}: {result.verdict}", flush=True)
            (tape,) = [*folder.rglob(FILE_NAME), None][:1]
            kept += [f"{name}={tape}"] if result.agree and tape else []
        subprocess.run([sys.executable, str(KEEP), "--hide", base, "--", *kept], check=True)


if __name__ == "__main__":
    main()
