"""How many bytes were read: files of any number, read at once."""

from __future__ import annotations

from pathlib import Path

from whichrank.intake.read_bytes import ReadBytes


def test_bytes_of_all_files_are_counted_once(tmp_path: Path) -> None:
    # GIVEN two files that are read at once, and one that is gone
    (tmp_path / "a").write_bytes(b"x" * 100)
    (tmp_path / "b").write_bytes(b"x" * 50)
    shown: list[tuple[int, int]] = []
    progress = ReadBytes([tmp_path / "a", tmp_path / "b", tmp_path / "gone"], lambda *both: shown.append(both))
    # WHEN a part of the second is read twice, as of an archive, and more of it than it has
    progress.part_of(1, 30)
    progress.part_of(0, 60)
    progress.part_of(1, 20)
    progress.part_of(1, 70)
    for number in range(3):
        progress.whole(number)
    # THEN what is shown never goes back, and ends at all bytes
    assert shown == [(30, 150), (90, 150), (90, 150), (110, 150), (150, 150), (150, 150), (150, 150)]
