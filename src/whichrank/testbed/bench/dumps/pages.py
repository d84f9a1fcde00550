"""The page of a report on the dumps of a large job: how long it takes to make, and a browser to show.

A browser is started for each picture, so an empty page is opened in turn with it: what the page itself costs is the
difference.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from whichrank.errors import IncompleteDataError
from whichrank.testbed.bench.dumps.cases import Layout
from whichrank.testbed.bench.dumps.large import Read, read_of, write_dumps
from whichrank.testbed.bench.dumps.peer import Run, run_limited

LAYOUT: Final = Layout(tp=8, dp=64, pp=8)
ENTRIES: Final = 100
OPENINGS: Final = 5
BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome")


def browser() -> str | None:
    """The path of one, None if there is none."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def open_page(program: str, show_progress: Callable[[int, int], None] = lambda _done, _total: None) -> list[Read]:
    """Make the page, and open it.

    Args:
        program: The path of a browser.
        show_progress: Called with how many dumps are written, and how many there are.

    Raises:
        IncompleteDataError: The browser does not show it.
    """
    with tempfile.TemporaryDirectory(prefix="whichrank-page-") as name:
        folder = Path(name)
        dumps, page, empty = folder / "dumps", folder / "page.html", folder / "empty.html"
        dumps.mkdir()
        write_dumps(dumps, ENTRIES, LAYOUT, show_progress)
        empty.write_text("<!doctype html><title>empty</title>", encoding="utf-8")
        made = run_limited([sys.executable, "-m", "whichrank", "report", str(dumps), "-o", str(page), "--force"])
        if not page.is_file():
            raise IncompleteDataError(f"the report was not made: {made.last_words}")
        taken: dict[Path, list[Run]] = {empty: [], page: []}
        for _ in range(OPENINGS):
            for path, runs in taken.items():
                runs.append(_opened(program, path, folder))
        what = f"a page of {LAYOUT.size:,} ranks, {page.stat().st_size / 2**20:.1f} MiB"
    alone, full = (sorted(runs, key=lambda run: run.took_s)[OPENINGS // 2] for runs in taken.values())
    more_s = [b.took_s - a.took_s for a, b in zip(*taken.values(), strict=True)]
    says = f"median of {OPENINGS}; {statistics.median(more_s):.2f} s more than an empty page, at most {max(more_s):.2f}"
    return [
        read_of(what, "whichrank report", made, f"exit code {made.code}"),
        read_of(what, "browser", full, says),
        read_of(what, "browser, empty page", alone, f"median of {OPENINGS}"),
    ]


def _opened(program: str, page: Path, folder: Path) -> Run:
    picture = folder / "picture.png"
    picture.unlink(missing_ok=True)
    run = run_limited(
        [
            program, "--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1280,4000",
            f"--user-data-dir={folder / 'profile'}", f"--screenshot={picture}", page.as_uri(),
        ]
    )  # fmt: skip
    if not picture.is_file():
        raise IncompleteDataError(f"{program} took no picture of a page: {run.last_words}")
    return run
