"""How a frame is drawn: it fits the terminal, the interesting rows stand first, and what is left out is counted."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from incident_cases import RECOVERED, not_entered
from rich.console import Console, RenderableType

from whichrank.model.changes import LevelChange
from whichrank.surface.watch.frame import CommunicatorNow, Frame, JobNow, Mark, Operation, RankNow
from whichrank.surface.watch.tables import compact, ranks_table
from whichrank.surface.watch.view import page, screen
from whichrank.surface.watch.words import short_duration

AT = datetime(2026, 1, 2, 3, 4, 50, tzinfo=UTC)
BLAMED = 5


def rank(number: int, mark: Mark = "") -> RankNow:
    if mark:
        return RankNow(rank=number, pid=4000 + number, mark=mark, state="stopped", main_wait="", ops=9, idle_s=43.0)
    return RankNow(
        rank=number,
        pid=4000 + number,
        state="sleeping",
        main_wait="lock",
        iteration=1203,
        ops=123_456,
        operation=Operation(kind="reduce_scatter_coalesced", counter=98_765, communicator="dp_shard_cp"),
        blocked_s=42.0,
    )


def job(world: int, name: str = "20260102-030405-node-a-4242") -> JobNow:
    others = [rank(number) for number in range(world) if number != BLAMED]
    comms = [
        CommunicatorNow(
            id=str(place),
            name="dp_shard_cp",
            role="dp",
            size=4,
            here=4,
            members=tuple(range(place, world, 8)),
            issued_min=98_764,
            issued_max=98_765,
            behind=(BLAMED,),
            waiting=3,
            longest_wait_s=42.0,
        )
        for place in range(world)
    ]
    return JobNow(
        job=name,
        state="running",
        started=AT - timedelta(minutes=5),
        world_size=world,
        ops_per_s=1234.5,
        ranks=(rank(BLAMED, "blamed"), *others),
        communicators=tuple(comms),
        incidents=(not_entered(), RECOVERED),
        faults=("ring 1.ring: the file does not begin as a ring does",),
    )


def frame(*jobs: JobNow) -> Frame:
    return Frame(at=AT, host="node-a", jobs=jobs)


def lines_of(part: RenderableType, width: int, **settings: bool) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=100, legacy_windows=False, **settings)
    console.print(part)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("world", [8, 64])
@pytest.mark.parametrize(("width", "height"), [(80, 24), (160, 50), (100, 30), (60, 16), (200, 60)])
def test_screen_is_filled_and_not_exceeded(width: int, height: int, world: int) -> None:
    lines = lines_of(screen(frame(job(world)), width, height), width)
    assert len(lines) == height
    assert max(map(len, lines)) <= width
    assert lines[0].startswith("whichrank watch")
    assert lines[-1].startswith("q quits")


def test_stopped_rank_is_inside_what_it_has_entered() -> None:
    inside = msgspec.structs.replace(
        rank(5, "blamed"), entered=Operation(kind="all_reduce", counter=7, communicator="tp"), in_flight=1
    )
    assert "inside all_reduce #7 on tp" in lines_of(ranks_table([inside], 80), 80)[1]
    assert "in no operation" in lines_of(ranks_table([rank(5, "blamed")], 80), 80)[1]


def test_details_say_nothing_of_processes_once_it_is_over() -> None:
    # GIVEN an alert whose job has ended, with a command for a process as older records have it
    over = not_entered(status="final", next=("on node-a: kill -CONT 4211",))
    text = "\n".join(lines_of(page(frame(msgspec.structs.replace(job(8), incidents=(over,))), 100), 100))
    assert "had not entered" in text
    assert "kill -CONT" not in text


def test_where_the_time_goes_is_shown_where_there_is_room() -> None:
    slow = msgspec.structs.replace(rank(3, ""), own_s=0.161, transfer_s=0.012, waiting_s=0.0)
    sound = msgspec.structs.replace(rank(4, ""), own_s=0.1, transfer_s=0.012, waiting_s=12.4)
    wide = lines_of(ranks_table([slow, sound], 84), 84)
    assert all(word in wide[0] for word in ("own", "transfer", "wait"))
    assert all(part in wide[1] for part in ("161 ms", "12 ms", "0 ms"))
    assert "12 s" in wide[2]
    # AND not in a narrow terminal, nor where it is not known
    assert "transfer" not in lines_of(ranks_table([slow], 80), 80)[0]
    assert "transfer" not in lines_of(ranks_table([rank(3, "")], 120), 120)[0]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (160, 50)])
def test_blamed_rank_is_shown_and_the_rest_is_counted(width: int, height: int) -> None:
    text = "\n".join(lines_of(screen(frame(job(64)), width, height), width))
    # THEN the verdict, the blamed rank with its mark as a word, and how many ranks and communicators are left out
    assert "ALERT hang: rank 5 (node node-a) has not entered the all-reduce on dp" in text
    assert "5 blamed" in text
    shown = text.count(" sleeping ") + 1
    assert f"and {64 - shown} more ranks" in text
    assert "more communicators" in text
    assert "42 s" in text


def test_small_screen_still_has_ranks_and_communicators() -> None:
    text = "\n".join(lines_of(screen(frame(job(8)), 80, 24), 80))
    assert "rank" in text
    assert "slowest" in text


def test_jobs_share_the_screen() -> None:
    jobs = [job(8, f"job-{number}") for number in range(5)]
    lines = lines_of(screen(frame(*jobs), 80, 24), 80)
    text = "\n".join(lines)
    assert len(lines) == 24
    assert all(name in text for name in ("job-0", "job-1", "job-2"))
    assert "and 1 more jobs" not in text or "job-4" not in text


def test_page_has_every_row() -> None:
    text = "\n".join(lines_of(page(frame(job(64)), 100), 100))
    assert all(f" {4000 + number} " in text for number in range(64))
    assert "more ranks" not in text


def test_no_job() -> None:
    assert "No job runs on this node" in lines_of(screen(frame(), 80, 24), 80)[1]


def test_no_colour_without_colour() -> None:
    plain = "\n".join(lines_of(screen(frame(job(8)), 80, 24), 80, force_terminal=True, no_color=True))
    assert "\x1b[31m" not in plain
    assert "blamed" in plain


def test_markup_in_names_is_not_obeyed() -> None:
    noisy = JobNow(job="[red]x[/red]", state="running", ranks=(rank(0),), world_size=1)
    assert "[red]x[/red]" in lines_of(page(frame(noisy), 80), 80)[0]


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ((), ""),
        ((3,), "3"),
        ((0, 1), "0,1"),
        ((0, 1, 2, 3, 6), "0-3,6"),
        ((1, 5, 9, 13), "1,5,..,13"),
        (tuple(range(64)), "0-63"),
    ],
)
def test_ranks_in_short(ranks: tuple[int, ...], text: str) -> None:
    assert compact(ranks) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.04, "0.0 s"), (9.94, "9.9 s"), (42, "42 s"), (600, "10 min"), (9000, "2.5 h")]
)
def test_durations_in_short(seconds: float, text: str) -> None:
    assert short_duration(seconds) == text


def test_it_is_said_what_iterations_take_and_since_when() -> None:
    changes = tuple(
        LevelChange(at=AT - timedelta(minutes=ago), iteration=1000 - ago, before_s=0.5, after_s=0.75) for ago in (9, 2)
    )
    one = msgspec.structs.replace(job(4), changes=changes)
    said = [line for line in lines_of(page(frame(one), 120), 120) if line.startswith("iterations take")]
    since = (AT - timedelta(minutes=2)).astimezone().strftime("%H:%M:%S")
    assert [line.rstrip() for line in said] == [f"iterations take 750 ms, 500 ms until iteration 998 at {since}"]
