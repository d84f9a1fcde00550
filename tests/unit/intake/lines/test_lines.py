"""Text as people have it, taken apart: encodings, wrapping, JSON, prefixes, several writers in one line."""

from __future__ import annotations

import io
import json
import time
from random import Random

import pytest

from whichrank.intake.grammar import HINTS, worded
from whichrank.intake.lines import encodings
from whichrank.intake.lines.encodings import as_utf8, encoding_of, is_text
from whichrank.intake.lines.hints import lines_of_interest
from whichrank.intake.lines.pieces import Piece, pieces
from whichrank.intake.lines.plain import plain_lines
from whichrank.intake.lines.prefixes import PREFIXES, Who, taken_off
from whichrank.intake.lines.torn import cut_at_writers
from whichrank.intake.lines.wrapped import width_of
from whichrank.intake.logs import read_log

HEAD = "[rank{rank}]:[E601 03:00:00.100000000 ProcessGroupNCCL.cpp:632] "
FIELDS = {"op": "ALLREDUCE", "numel": 64, "timeout_ms": 600000, "ran_ms": 600001, "pg": 0, "desc": "default_pg"}


def status(rank: int, seq: int = 166, enqueued: int = 169) -> str:
    """A line of torch that says how far a rank is."""
    said = worded("status", place=rank, seq=seq, enqueued=enqueued, completed=seq - 1, **FIELDS)
    return HEAD.format(rank=rank) + said


def of_text(text: str) -> list[Piece]:
    return list(pieces(io.BytesIO(text.encode()), HINTS))


@pytest.mark.parametrize("name", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_text_of_any_encoding_is_the_same(name: str) -> None:
    text = (status(3) + "\n") * 900
    stream = io.BufferedReader(io.BytesIO(text.encode(name)), 1 << 16)  # type: ignore[arg-type]
    recoded, head = as_utf8(stream, stream.peek(1 << 16)[: 1 << 16])
    assert head.startswith(b"[rank3]:")
    assert recoded.read() == text.encode()


def test_what_is_no_text_is_none() -> None:
    assert not is_text(bytes(Random(3).randbytes(4096)))
    assert not is_text(b"")
    assert not is_text(b"\x00" * 5000)
    assert encoding_of(b"\x00" * 900 + b"step 1 loss 0.2\n" * 9) == ("utf-8", 0)  # rotated while it was written


def test_a_block_ends_with_a_line_and_a_long_line_at_a_blank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encodings, "BLOCK_BYTES", 16)
    found = list(encodings.blocks(io.BytesIO(b"ab cd\n" * 7 + b"wo rd " * 20)))
    assert b"".join(found) == b"ab cd\n" * 7 + b"wo rd " * 20
    assert all(block.endswith((b"\n", b" ")) for block in found)


@pytest.mark.parametrize("width", [80, 100, 120, 132])
def test_lines_that_were_cut_at_a_width_are_joined(width: int) -> None:
    lines = [status(rank) for rank in range(6)]
    cut = "\n".join(line[at : at + width] for line in lines for at in range(0, len(line), width))
    assert width_of(cut.encode()) == width
    assert [piece.who.rank for piece in of_text(cut + "\n") if "last completed work: 165" in piece.text] == [*range(6)]


def test_words_that_were_kept_whole_are_joined_too() -> None:
    text = status(4)
    at = text.rfind(" ", 0, 100)
    wrapped = f"{text[:at]}\n{text[at + 1 :]}\n" * 4
    assert width_of(wrapped.encode()) < 0
    assert sum("last completed work: 165" in piece.text for piece in of_text(wrapped)) == 4


def test_a_log_with_rules_of_equal_length_is_not_wrapped() -> None:
    assert width_of(b"=" * 80 + b"\n" + b"-" * 80 + b"\nstep 1\n" * 20) == 0


def test_lines_behind_a_hint_belong_to_it_across_blocks() -> None:
    blocks = [b"nothing\nhint 1\n", b"a\nb\nc\nd\n", b"e hint\n"]
    found = [line for line, _ in lines_of_interest(blocks, {b"hint": 3})]
    assert found == [b"hint 1", b"a", b"b", b"c", b"e hint"]


@pytest.mark.parametrize(
    "wrapped",
    [
        json.dumps({"log": "{line}\n", "stream": "stderr", "time": "2026-06-01T03:00:00Z"}),
        json.dumps({"timestamp": 1, "message": "{line}"}),
        '            "message": "{line}",',
        "\x1b[31m{line}\x1b[0m",
        "step 1\r{line}\rstep 2",
    ],
)
def test_what_wraps_a_line_is_taken_off(wrapped: str) -> None:
    line = "[rank3]: it said <b> & so on"
    assert any(part.endswith(line) for part in plain_lines(wrapped.replace("{line}", line)))


def test_html_is_undone_where_it_is_html() -> None:
    assert list(plain_lines("a &lt;b&gt; &amp;amp; c")) == ["a <b> & c"]
    assert list(plain_lines("a && b")) == ["a && b"]


@pytest.mark.parametrize("prefix", PREFIXES, ids=lambda prefix: prefix.writer)
def test_each_prefix_is_taken_off(prefix: object) -> None:
    said = "[E601 03:00:00.1 ProcessGroupNCCL.cpp:632] [Rank 3] x"
    assert taken_off(prefix.example + said)[1] == said  # type: ignore[attr-defined]


def test_who_wrote_a_line_is_said_by_its_prefixes() -> None:
    assert taken_off("0: [rank13]: hello") == (Who(rank=13, task=0), "hello")
    assert taken_off("[default5]:hello") == (Who(), "hello")  # a number on a node
    who, _ = taken_off("2026-06-01T03:00:00.5Z (Worker pid=71, ip=10.0.0.2) [rank2]: x")
    assert (who.rank, who.pid, who.host, who.time) == (2, 71, "10.0.0.2", "2026-06-01T03:00:00.5Z")


def test_two_writers_in_one_line_are_two_pieces() -> None:
    line = HEAD.format(rank=2) + "[Rank 2] Some NCCL " + status(5)
    first, second = (taken_off(text)[0].rank for text, *_ in cut_at_writers(line))
    assert (first, second) == (2, 5)


def test_a_number_at_which_another_writer_cut_in_is_not_believed() -> None:
    # GIVEN rank 3 had completed 165 when rank 4 wrote into its line, so that 16 is left of it
    whole = status(3)
    log = read_log(io.BytesIO((whole[: whole.rfind("165") + 2] + status(4) + "\n").encode()))
    assert [(one.rank, one.completed) for one in log.standings] == [(4, 165)]


def test_everything_in_one_line_is_read() -> None:
    text = " ".join(status(rank) for rank in range(5))
    assert [one.rank for one in read_log(io.BytesIO(text.encode())).standings] == [*range(5)]


def test_the_rest_of_a_progress_bar_does_not_hide_the_writer() -> None:
    text = " 12%|█▏  | 12/100 [00:01<00:10]" + status(6) + "\n"
    assert [one.rank for one in read_log(io.BytesIO(text.encode())).standings] == [6]


@pytest.mark.parametrize("seed", range(40))
def test_a_line_is_taken_apart_alike_whether_it_was_seen_before_or_not(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN lines with one and with several heads, prefixes, and what wraps them
    rng = Random(seed)
    mixed = ["", "[rank3]:", "3: ", "[default1]:", "\x1b[31m", '{"log": "', "2026-06-01T03:00:00Z ", "> ", "&lt;", "\r"]
    mixed += [HEAD.format(rank=1), "[E601 03:00:00.1 a.cpp:1] ", "node1:1:2 [0] NCCL INFO ", "srun: error: ", "abc "]
    lines = []
    for _ in range(30):
        said = status(rng.randrange(3), enqueued=166 + rng.randrange(2))
        at = rng.randrange(len(said)) if rng.random() < 0.3 else len(said)
        lines.append(rng.choice(mixed) + rng.choice(mixed) + said[:at] + rng.choice(mixed) + said[at:])
    text = "\n".join(lines * 2)
    quick = [piece[:3] for piece in of_text(text)]
    # WHEN nothing is remembered of the lines before
    monkeypatch.setattr("whichrank.intake.lines.pieces._Known.piece", lambda *_args, **_named: None)
    # THEN the pieces are the same
    assert [piece[:3] for piece in of_text(text)] == quick


@pytest.mark.parametrize("prefix", PREFIXES, ids=lambda prefix: prefix.writer)
def test_no_prefix_is_empty(prefix: object) -> None:
    assert prefix.pattern.match("") is None  # type: ignore[attr-defined]


def test_a_hint_that_ends_a_list_is_one_behind_a_number_only() -> None:
    block = b"[INFO] finished 1\n[0, 1] finished ALLREDUCE\n[INFO] finished [2] finished X\n"
    assert [line for line, _ in lines_of_interest([block], {b"] finished ": 0})] == block.splitlines()[1:]


MOST_S_A_MB = 4.0


@pytest.mark.parametrize(
    "repeated",
    [
        "[rank3]:", "3: ", "[1,3]<stderr>:", "> ", "a1: ", "(W pid=1) ", "2026-06-01T03:00:00 ", "[PG ID 0 PG GUID 0(",
        "last enqueued work: ", "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, ",
        "node1:1:1 [0] NCCL ",
        "[E601 03:00:00 a.cpp:1] ", "CollectiveFingerPrint(OpType=A, ", "\x1b[", "&amp;", '{"log": "', "[0, 1, ",
        "join collective # ", "rank 1 nranks 2 comm 0x1 ", "gloo/transport/a.cc:1] ", "nranks ", "srun: error: ",
    ],
)  # fmt: skip
def test_no_pattern_takes_long_for_long_lines_of_repeated_prefixes(repeated: str) -> None:
    # GIVEN a line of 256 KiB of one prefix, with words that make it a line of interest
    hints = " last enqueued Watchdog caught NCCL WARN nranks gloo/transport join collective # Detected mismatch between"
    text = (repeated * ((1 << 18) // len(repeated)) + hints + "\n").encode()
    begun_s = time.process_time()
    list(pieces(io.BytesIO(text), HINTS))
    try:
        read_log(io.BytesIO(text))
    except Exception as error:
        assert "says nothing" in str(error)  # noqa: PT017
    assert time.process_time() - begun_s < MOST_S_A_MB
