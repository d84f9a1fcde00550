"""Paths in, recordings out, and what a user is reported where that fails."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import random
import shutil
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import pytest

from whichrank.errors import IncompleteDataError, UsageError
from whichrank.intake.parts import look_into
from whichrank.intake.read import BYTES_A_PROCESS, _processes, read
from whichrank.intake.recording import Note
from whichrank.intake.workers import each
from whichrank.model.incident import Incident
from whichrank.server.analyze import analyze
from whichrank.testbed.bench.dumps.cases import Case, cases
from whichrank.testbed.bench.dumps.played import dump_of, play

RECORDED = Path(__file__).parents[4] / "shared" / "data"
CULPRITS = (9, 14)


def a_case(start: str) -> Case:
    return next(case for case in cases() if case.name.startswith(start))


def written(folder: Path, case: Case, name: Callable[[int], str] = lambda rank: f"trace_{rank}") -> Path:
    """The dumps of a job, as files."""
    folder.mkdir(exist_ok=True)
    played = play(case.programs, case.fault)
    for rank in range(len(case.programs)):
        (folder / name(rank)).write_bytes(pickle.dumps(dump_of(played, rank, case.groups, case.style), 2))
    return folder


def incidents_in(*paths: Path) -> tuple[Incident, ...]:
    return tuple(incident for recording in read(paths).recordings for incident in analyze(recording))


def culprits_in(*paths: Path) -> list[int]:
    return sorted(culprit.rank for incident in incidents_in(*paths) for culprit in incident.culprits)


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("dumps") / "job", a_case("host stopped, tp2-dp2-pp2, whole"))


@pytest.fixture(name="culprits", scope="module")
def _culprits(folder: Path) -> list[int]:
    """Whom the dumps in that folder name."""
    return culprits_in(folder)


def test_a_folder_of_dumps_names_its_culprit(folder: Path) -> None:
    (incident,) = incidents_in(folder)
    assert [c.rank for c in incident.culprits] == list(a_case("host stopped, tp2-dp2-pp2, whole").culprits)
    assert (incident.job, incident.status, incident.complete) == ("job", "final", True)
    assert incident.next == ()


def test_an_archive_of_them_says_the_same(folder: Path, tmp_path: Path, culprits: list[int]) -> None:
    for kind in ("tar", "gztar", "xztar"):
        archive = Path(shutil.make_archive(str(tmp_path / kind), kind, folder))
        nameless = archive.rename(tmp_path / f"{kind}-without-an-ending")
        assert culprits_in(nameless) == culprits


def test_json_and_pickles_and_gzip_may_be_mixed(folder: Path, tmp_path: Path, culprits: list[int]) -> None:
    for number, path in enumerate(sorted(folder.iterdir())):
        dump = pickle.loads(path.read_bytes())
        data = json.dumps(dump).encode() if number % 2 else path.read_bytes()
        (tmp_path / f"{path.name}.bin").write_bytes(gzip.compress(data) if number % 3 else data)
    (tmp_path / "README").write_text("notes of ours, 17 of them")
    assert culprits_in(tmp_path) == culprits


def test_ranks_are_known_by_content_where_names_lie(folder: Path, tmp_path: Path, culprits: list[int]) -> None:
    for path in folder.iterdir():
        rank = int(path.name.rsplit("_", 1)[1])
        shutil.copy(path, tmp_path / f"host-{7 - rank}-dump")
    assert culprits_in(tmp_path) == culprits


def test_dumps_of_two_jobs_are_not_mixed(folder: Path, tmp_path: Path) -> None:
    # GIVEN two dumps of one rank WHEN they are read THEN that is said, with a command for one of them
    other = written(tmp_path / "other job", a_case("host stopped, tp2-dp2-pp2, wrapped"))
    with pytest.raises(UsageError, match=r"are both of rank 0(?s:.)*whichrank analyze '.*other job'"):
        read([folder, other])
    # AND so it is where the jobs have different sizes
    (tmp_path / "mixed").mkdir()
    small, large = written(tmp_path / "small", a_case("host stopped, dp8, whole")), tmp_path / "large"
    written(large, a_case("host stopped, tp4-dp2-pp4, whole"))
    shutil.copy(small / "trace_0", tmp_path / "mixed")
    shutil.copy(large / "trace_9", tmp_path / "mixed")
    with pytest.raises(UsageError, match=r"is of a job of 8 ranks, and .* of one of 32") as raised:
        read([tmp_path / "mixed"])
    # AND what lies in one folder is not told apart by naming that folder
    assert raised.value.mend.startswith("take one of these two away")
    assert "whichrank analyze" not in raised.value.mend


def test_a_folder_within_the_other_is_the_one_to_give(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "job")
    written(tmp_path / "job" / "older", a_case("host stopped, tp2-dp2-pp2, wrapped"))
    with pytest.raises(UsageError) as raised:
        read([tmp_path / "job"])
    assert raised.value.mend == f"give those of one only, such as  whichrank analyze {tmp_path}/job/older"


def test_a_copy_of_a_file_is_no_second_job(folder: Path, tmp_path: Path, culprits: list[int]) -> None:
    # GIVEN dumps of which one is there twice, once packed
    shutil.copytree(folder, tmp_path / "job")
    (tmp_path / "job" / "trace_3.bak").write_bytes(gzip.compress((folder / "trace_3").read_bytes()))
    # WHEN they are read THEN one of them is used, and the other is said to be left out
    intake = read([tmp_path / "job"])
    (note,) = (note for note in intake.notes if note.state != "read")
    assert (note.path, note.state) == (f"{tmp_path}/job/trace_3.bak", "ignored")
    assert note.what == f"it says the same as '{tmp_path}/job/trace_3'"
    assert culprits_in(tmp_path / "job") == culprits


def test_a_dump_that_was_made_before_the_others_is_left_out(folder: Path, tmp_path: Path) -> None:
    # GIVEN the dumps of a job that stands still, and one of a healthy rank that was made while it still went on
    case = a_case("host stopped, tp2-dp2-pp2, whole")
    shutil.copytree(folder, tmp_path / "job")
    healthy = next(rank for rank in range(8) if rank not in case.culprits)
    young = play([units[: len(units) // 3] for units in case.programs], case.fault)
    (tmp_path / "job" / f"trace_{healthy}").write_bytes(pickle.dumps(dump_of(young, healthy, case.groups, case.style)))
    # WHEN they are read THEN it is known to be older, and is no culprit
    (recording,) = read([tmp_path / "job"]).recordings
    assert "before those of its peers" in recording.unread[healthy]
    assert culprits_in(tmp_path / "job") == list(case.culprits)


def test_dumps_of_a_job_that_goes_on_name_nobody(folder: Path, tmp_path: Path) -> None:
    # GIVEN dumps that were written half a second after their latest operation
    shutil.copytree(folder, tmp_path / "job")
    for path in (tmp_path / "job").iterdir():
        latest_ns = max(entry["time_created_ns"] for entry in pickle.loads(path.read_bytes())["entries"])
        os.utime(path, ns=(latest_ns + 5 * 10**8,) * 2)
    # WHEN they are analyzed THEN who is behind is a candidate of a notice: it may be so for a moment only
    (incident,) = incidents_in(tmp_path / "job")
    assert (incident.severity, incident.culprits) == ("notice", ())
    assert [c.rank for c in incident.candidates] == list(a_case("host stopped, tp2-dp2-pp2, whole").culprits)


@pytest.mark.parametrize(
    ("sizes", "processes"),
    [
        ([], 1),
        ([60_000] * 16, 1),
        ([BYTES_A_PROCESS - 1], 1),
        ([BYTES_A_PROCESS] * 2, 3),
        ([20 * BYTES_A_PROCESS], 4),
    ],
)
def test_as_many_processes_read_as_are_worth_their_start(
    sizes: list[int], processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN files of these sizes, and four cores
    for number, size in enumerate(sizes):
        with (tmp_path / f"trace_{number}").open("wb") as file:
            file.truncate(size)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)))
    # THEN no process is started for a few bytes, and no more than there are cores; what is gone counts for nothing
    assert _processes([*tmp_path.iterdir(), tmp_path / "gone"]) == processes


@pytest.mark.parametrize(
    ("content", "state", "words"),
    [
        (b"", "empty", "it is empty"),
        (b"\x00\xff\x13" * 400, "ignored", "no recording that is known"),
        (b"\x80\x02}q\x00(X\x07\x00\x00\x00versionq\x01", "damaged", "the pickle is cut"),
        (b"\x80\x02}r\xff\xff\xff\x7f.", "damaged", "more memory"),
        (b"\x80\x04cos\nsystem\n.", "damaged", "code is never run"),
        (b"\x80\x02]q\x00.", "damaged", "no dump of the Flight Recorder"),
        (b'{"pg_config": {"0": ' + b"[" * 100_000, "damaged", "the JSON cannot be read"),
        (b'{"version": "9.0", "entries": []}', "damaged", "version 9.0"),
        (b"PAR1" + b"\x00" * 100, "damaged", "Parquet file"),
    ],
)
def test_bad_files_get_one_sentence(content: bytes, state: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "trace_3").write_bytes(content)
    (parts,) = each(look_into, [tmp_path / "trace_3"])
    assert isinstance(parts, list)
    assert parts[0].note.state == state
    assert words in parts[0].note.what
    with pytest.raises(IncompleteDataError) as raised:
        read([tmp_path])
    assert "Traceback" not in str(raised.value)


def test_changed_bytes_are_damage_and_nothing_else(folder: Path, tmp_path: Path) -> None:
    # GIVEN dumps in which bytes are changed at random
    rng = random.Random(11)
    good = (folder / "trace_1").read_bytes()
    for number in range(150):
        data = bytearray(good)
        for _ in range(rng.randint(1, 8)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        (tmp_path / f"trace_{number}").write_bytes(data[: rng.choice((len(data), rng.randrange(len(data))))])
    # WHEN they are looked into THEN each is a dump or damaged, and no process was lost for good
    files = sorted(tmp_path.iterdir())
    found = list(each(look_into, files))
    assert len(found) == len(files)
    for parts in found:
        assert isinstance(parts, list)
        assert {part.note.state for part in parts} <= {"read", "damaged", "ignored"}


def test_a_folder_without_a_recording_is_said_to_have_none(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(IncompleteDataError, match="there is no recording in"):
        read([tmp_path])


def test_a_file_without_a_rank_says_how_to_name_it(tmp_path: Path) -> None:
    (tmp_path / "dump").write_bytes(pickle.dumps({"version": "2.1", "entries": []}, 2))
    with pytest.raises(IncompleteDataError, match="name it like trace_0"):
        read([tmp_path / "dump"])


# ---- recordings that others made -------------------------------------------------------------------------------------


@pytest.fixture(name="recorded", params=["flight_recorder_gil_1", "flight_recorder_gpu_2"])
def _recorded(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    source = RECORDED / str(request.param)
    if not source.is_dir():
        pytest.skip(f"there is no {source}")
    folder = tmp_path / "recorded"
    folder.mkdir()
    for file in source.iterdir():
        shutil.copyfile(file, folder / file.name)
    return folder


def test_recorded_hangs_name_their_two_ranks(recorded: Path) -> None:
    (incident,) = incidents_in(recorded)
    assert tuple(c.rank for c in incident.culprits) == CULPRITS
    assert incident.victims.count == 14


def _remove(path: Path) -> None:
    path.unlink()


def _halve(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [_remove, _halve, _empty])
def test_without_some_files_nobody_else_is_named(damage: Callable[[Path], None], recorded: Path) -> None:
    # GIVEN recorded hangs of which one to three files are damaged, the culprits' too
    rng = random.Random(3)
    sets = [*combinations(range(16), 1), *rng.sample(list(combinations(range(16), 2)), 3), (9, 14), (8, 9, 14)]
    whole = {path.name: path.read_bytes() for path in recorded.iterdir()}
    for ranks in [*rng.sample(sets, 2), (9,), (14,), (9, 14)]:
        for name, data in whole.items():
            (recorded / name).write_bytes(data)
        for rank in ranks:
            damage(recorded / f"_dump_{rank}")
        # WHEN they are analyzed THEN those that are left are named, and nobody is suspected but whose files are damaged
        (incident,) = incidents_in(recorded)
        assert [c.rank for c in incident.culprits] == [rank for rank in CULPRITS if rank not in ranks], ranks
        assert {c.rank for c in incident.candidates} <= set(ranks)
        assert set(ranks).intersection(CULPRITS) <= {c.rank for c in incident.candidates}
        assert not incident.complete


def test_notes_are_as_json_has_them() -> None:
    import msgspec

    assert msgspec.json.encode(Note("a:b", "flight_recorder", "read", 3)) == (
        b'{"path":"a:b","format":"flight_recorder","state":"read","rank":3}'
    )


def test_progress_moves_within_one_large_file(tmp_path: Path) -> None:
    # GIVEN one log of 48 MB
    line = "step 1 loss 0.25\n" * 60_000
    with (tmp_path / "job.log").open("w", encoding="ascii") as file:
        for _ in range(47):
            file.write(line)
        file.write("srun: error: node3: task 5: Killed\n")
    shown: list[tuple[int, int]] = []
    read([tmp_path], lambda *both: shown.append(both))
    # THEN it is seen before the file is done, in bytes, and never goes back
    size = (tmp_path / "job.log").stat().st_size
    assert shown[-1] == (size, size)
    assert shown == sorted(shown)
    assert any(0 < done < size for done, _ in shown)
