"""How the ranks of a job are arranged, in words."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from made_groups import MEGATRON, MESH, Described, communicators, groups_made

from whichrank.errors import UsageError
from whichrank.model.kinds import Kind
from whichrank.stage.config_file import configured
from whichrank.stage.layout import Layout
from whichrank.stage.learned import learn
from whichrank.surface.configuration import configuration_at
from whichrank.surface.export.tables import json_of
from whichrank.surface.report.job_layout import layout_name, layout_words, why_no_layout
from whichrank.surface.report.make import gather
from whichrank.surface.report.page import page_of
from whichrank.testbed.bench.dumps.cases import cases
from whichrank.testbed.bench.dumps.compare import write_case


def test_a_layout_is_named_with_its_order_if_that_is_not_the_usual_one() -> None:
    assert layout_name(Layout.parse("tp2-dp4-pp2")) == "tp2-dp4-pp2"
    assert layout_name(Layout(tp=2, dp=4, order=("tp", "pp", "dp", "cp"))) == "tp2-dp4"
    assert layout_name(Layout(tp=2, dp=4, pp=2, order=("tp", "cp", "pp", "dp"))) == (
        "tp2-dp4-pp2 in the order tp-pp-dp"
    )


@pytest.mark.parametrize(
    ("groups", "ranks", "words"),
    [
        ([], 8, ""),
        ([(MESH["pp"], [0, 4])], 8, "of the layout only pp2 is known"),
        (
            [(MESH["pp"], [0, 1, 2]), (MESH["pp"], [3, 4, 5, 6]), (MESH["pp"], [7, 8, 9, 10])], 12,
            "no single layout: ranks 0-2 are a pp group, and others have 4 ranks",
        ),
        (
            [(MESH["tp"], [0, 1]), (MESH["tp"], [2, 3]), (MESH["tp"], [4, 6])], 8,
            "no single layout: the tp group of ranks 4 and 6 lies otherwise than the others",
        ),
        (
            [(MESH["pp"], [0, 1, 3])], 6,
            "no single layout: the pp group of ranks 0, 1 and 3 is not evenly spaced",
        ),
        (
            [*communicators(Layout.parse("tp2-dp4")), (MEGATRON["ep"], [0, 1])], 8,
            "no single layout: the ep group of ranks 0 and 1 does not lie among neighbours in data and context",
        ),
        (
            [(MESH["tp"], range(20)), (MESH["tp"], [20, 21]), (MESH["tp"], [22, 23])], 24,
            "no single layout: ranks 0-15... are a tp group, and others have 2 ranks",
        ),
    ],
)  # fmt: skip
def test_why_none_is_said(groups: list[Described], ranks: int, words: str) -> None:
    assert why_no_layout(learn(groups_made(groups, ranks))) == words


def test_a_layout_that_only_operations_tell_is_not_said_to_be_learned() -> None:
    found = learn(groups_made([("default_pg", range(8))], 8, {0: {Kind.ALL_REDUCE: 10}}))
    assert found.layout == Layout(dp=8)
    assert why_no_layout(found) == "by its operations the layout may be dp8"


@pytest.mark.parametrize(
    ("groups", "text", "known", "conflicts"),
    [
        ("tp2-dp2-pp2", "[layout]\ntp = 2\npp = 2", "layout tp2-dp2-pp2, by communicators and configuration", ()),
        (
            "tp2-dp2-pp2", "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2",
            "layout tp2-dp2-pp2, learned from communicators",
            ("By the configuration (--tensor-model-parallel-size) tp is 4, by the communicators 2.",),
        ),
        (
            "", "[layout]\ntp = 2\npp = 2",
            "layout tp2-dp2-pp2, by the configuration; no communicator contradicts it", (),
        ),
        ("", "[layout]\ntp = 3", "", ("By the configuration the job is tp3, by the communicators 8 ranks.",)),
    ],
)  # fmt: skip
def test_a_configuration_is_held_against_the_communicators(
    groups: str, text: str, known: str, conflicts: tuple[str, ...]
) -> None:
    made = communicators(Layout.parse(groups)) if groups else []
    said = layout_words(groups_made(made, 8), configured(text))
    assert (said.known, said.conflicts) == (known, conflicts)


@pytest.mark.parametrize(
    ("text", "words"),
    [(None, "cannot be read"), ("lr = 3", "no layout of a job was found in this text"), ("{", "this is no JSON")],
)
def test_a_configuration_that_says_nothing_is_refused(tmp_path: Path, text: str | None, words: str) -> None:
    path = tmp_path / "job.toml"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=re.escape(words)):
        configuration_at(path)


def test_mark_of_the_byte_order_is_no_part_of_a_configuration(tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    path.write_bytes(b'\xef\xbb\xbf{"tensor_parallel": {"autotp_size": 2}}')
    assert configuration_at(path).degrees == {"tp": 2}


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path):
        with pytest.raises(UsageError, match="is no file"):
            configuration_at(path)


def test_page_and_export_say_the_layout(tmp_path: Path) -> None:
    write_case(next(case for case in cases() if case.name == "host stopped, tp2-dp2-pp2, whole"), tmp_path)
    gathered = gather([tmp_path]).gathered
    assert "layout tp2-dp2-pp2, learned from communicators" in page_of(gathered)
    assert json.loads(b"".join(json_of(gathered)))["layout"] == "tp2-dp2-pp2"
