"""A file of results goes on where it was, and says so where it cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from whichrank.errors import FormatError, UsageError
from whichrank.testbed.bench.results_file import (
    append_result,
    keep_run,
    make_ready,
    read_results,
    ready_empty_folder,
    ready_folder,
    ready_picture,
)


def read(path: Path) -> list[Any]:
    return read_results(path, lambda line: msgspec.json.decode(line, type=dict[str, int]))


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (b'{"a":1}\n{"a":2}\n', [1, 2]),
        (b'{"a":1}\n{"a":2}', [1, 2]),  # an editor took the last newline
        (b'{"a":1}\n{"a":', [1]),  # killed while writing
        (b'{"a":1}\n\n', [1]),
        (b"", []),
    ],
)
def test_it_goes_on_after_the_last_whole_line(tmp_path: Path, text: bytes, left: list[int]) -> None:
    path = tmp_path / "results.jsonl"
    path.write_bytes(text)
    assert [found["a"] for found in read(path)] == left
    make_ready(path)
    append_result(path, {"a": 9})
    assert [found["a"] for found in read(path)] == [*left, 9]


@pytest.mark.parametrize("text", [b"mine", b"mine\nand mine", b'{"a":1}\nmine\n', b'{"a":"b"}'])
def test_a_file_of_somebody_elses_is_refused_and_stays(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "results.jsonl"
    path.write_bytes(text)
    with pytest.raises(FormatError, match="no result of a campaign"):
        read(path)
    assert path.read_bytes() == text


def test_a_run_is_kept_in_a_folder_of_its_own_or_beside_nothing_of_its_name(tmp_path: Path) -> None:
    run, mine = tmp_path / "run", tmp_path / "mine"
    for folder in (run, run / "node-1"):
        folder.mkdir(mode=0o700)
        (folder / "job.log").write_text("said")
    # GIVEN a folder of the user's WHEN a run is to be kept there alone THEN it is refused, and is as it was
    mine.mkdir(mode=0o755)
    (mine / "notes").write_text("mine")
    with pytest.raises(UsageError, match="this one is not empty"):
        ready_empty_folder(mine)
    # WHEN one is empty THEN it has the run, and the mode that it had
    (mine / "notes").unlink()
    ready_empty_folder(mine)
    keep_run(run, mine)
    assert sorted(str(path.relative_to(mine)) for path in mine.rglob("*")) == ["job.log", "node-1", "node-1/job.log"]
    assert mine.stat().st_mode & 0o777 == 0o755
    # AND one that is made is for its user only
    keep_run(run, tmp_path / "new")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


def test_where_nothing_can_be_written_one_sentence_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"mine")
    inside = tmp_path / "file" / "inside"
    for ready, option in ((make_ready, "--results"), (ready_folder, "--keep"), (ready_picture, "--picture")):
        with pytest.raises(UsageError) as caught:
            ready(inside)
        assert option in caught.value.mend
    with pytest.raises(UsageError, match="runs cannot be kept there"):
        keep_run(tmp_path, inside)
