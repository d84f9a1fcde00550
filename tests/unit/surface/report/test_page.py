"""The page of a report: what it says of each incident, and that it needs no script, no pointer and no network."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from html import unescape
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from clockless_log import write_clockless_log
from incident_cases import EVERY, RANK_5, SLOW, UNKNOWN, not_entered
from taped_run import page_at, two_hangs

from whichrank.hang.who_waits import Waiting
from whichrank.model.changes import LevelChange
from whichrank.model.evidence import Evidence
from whichrank.model.incident import Culprit, Incident, Spent, Stage, Victims
from whichrank.model.links import LinkRate
from whichrank.model.telemetry import Stack
from whichrank.surface.report.gather import Gathered
from whichrank.surface.report.make import gather
from whichrank.surface.report.page import page_of
from whichrank.surface.report.scene import Scene
from whichrank.surface.report.units import ranges, unit_of
from whichrank.testbed.bench.dumps.cases import Layout, cases
from whichrank.testbed.bench.dumps.compare import write_case
from whichrank.testbed.bench.dumps.large import write_dumps
from whichrank.testbed.bench.dumps.pages import browser

CHROMIUM = browser()
EVIL = '</script><script>document.title="taken"</script><img src=x onerror="document.title=\'taken\'">'


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dumps")
    write_case(next(case for case in cases() if case.name == "host stopped, tp2-dp2-pp2, whole"), folder)
    return folder


@pytest.fixture(name="hangs", scope="module")
def _hangs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    two_hangs(folder)
    return folder


def text_of(markup: str) -> str:
    """What a reader sees of it, a line for each element."""
    return unescape(re.sub(r"\s*\n\s*", "\n", re.sub(r"<[^>]+>", "\n", markup)))


def articles(page: str) -> list[str]:
    """The parts of a page that are about one incident each."""
    return re.findall(r"<article.*?</article>", page, re.DOTALL)


def boxes(markup: str, class_: str = "box") -> list[str]:
    """The heads of the boxes of the chain."""
    return [unescape(head) for head in re.findall(rf'<div class="{class_}"><b>(.*?)</b>', markup)]


def said_in_boxes(markup: str) -> list[tuple[str, str]]:
    """The heads of the boxes of the chain, and what they say."""
    return re.findall(r'<div class="box"><b>(.*?)</b>(.*?)</div>', markup)


def ranks_in(text: str) -> set[int]:
    """The ranks of `3 ranks: 0-1, 3` and of `rank 7`."""
    listed = text.split(":")[-1].replace("ranks", "").replace("rank", "")
    found = re.findall(r"(\d+)(?:-(\d+))?", listed)
    return {rank for a, b in found for rank in range(int(a), int(b or a) + 1)}


def with_incidents(gathered: Gathered, *incidents: Incident, scenes: Sequence[Scene | None] = ()) -> Gathered:
    return dataclasses.replace(
        gathered, incidents=incidents, scenes=tuple(scenes) or (None,) * len(incidents), job_scene=None
    )


def test_each_incident_is_about_its_own_ranks_only(hangs: Path) -> None:
    # GIVEN a run in which rank 2 hung and went on, and rank 1 hung later
    page, incidents = page_at(hangs)
    assert [[c.rank for c in one.culprits] for one in incidents] == [[2], [1]]
    # THEN a list leads to both, and each has its own culprit, its own waits and its own operation
    first, second = articles(page)
    for number, article in enumerate((first, second), 1):
        assert f'href="#incident-{number}"' in page
        assert f'id="incident-{number}"' in article
    assert (boxes(first, "box end"), boxes(second, "box end")) == (["rank 2"], ["rank 1"])
    assert (boxes(first), boxes(second)) == (["3 ranks: 0-1, 3"], ["3 ranks: 0, 2-3"])
    assert "in all_reduce #9 on default_pg for rank 2" in text_of(first)
    assert "in all_reduce #41 on default_pg for rank 1" in text_of(second)
    # AND in neither is the rank of the other one marked
    marked = [set(re.findall(r'class="named"[^>]*>(rank \d+)', article)) for article in (first, second)]
    assert marked == [{"rank 2"}, {"rank 1"}]
    # AND what is over is reported in the past, and nothing is to be done to a process of it
    assert "had not entered" in first
    assert "has not entered" not in first
    assert "kill -CONT" not in first


def test_a_candidate_is_no_culprit_because_another_incident_has_one(folder: Path) -> None:
    # GIVEN an incident that names rank 5, and one with candidates
    reported = with_incidents(gather([folder]).gathered, not_entered(), msgspec.structs.replace(UNKNOWN, id="i-2"))
    first, second = articles(page_of(reported))
    # THEN one page calls each what it is
    assert "culprit:" in text_of(first)
    assert boxes(second, "box end") == ["rank 2", "rank 6"]
    assert "candidate; the evidence does not decide: it is one op behind" in text_of(second)
    assert "culprit:" not in text_of(second)


@pytest.mark.parametrize(("layout", "rank"), [(Layout(tp=4, dp=4, pp=4), 21), (Layout(tp=4, dp=8, pp=8), 149)])
def test_words_and_boxes_count_the_same_ranks(
    layout: Layout, rank: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN dumps of a pipeline of which one rank is stopped
    monkeypatch.setattr("whichrank.testbed.bench.dumps.large.CULPRIT", rank)
    write_dumps(tmp_path, 100, layout)
    page, (incident,) = page_at(tmp_path)
    (article,) = articles(page)
    assert [one.rank for one in incident.culprits] == [rank]
    # THEN every rank that waits is in one box
    assert incident.victims.count == layout.size - 1
    assert f"{layout.size - 1} ranks waited" in text_of(article)
    placed = [r for head in boxes(article) for r in ranks_in(head)]
    assert sorted(placed) == sorted(set(range(layout.size)) - {rank})
    # AND boxes name only ranks that have a box
    for_whom = re.findall(r"</b>in [^<]* for ranks? ([^<]*)<", article)
    assert for_whom
    assert {r for text in for_whom for r in ranks_in(text)} <= {*placed, rank}
    # AND the culprit has its label among the operations
    assert f'<div class="named">rank {rank}</div>' in article
    # AND the chart has each rank in the operation in which its box has it
    waits_in = {r: text.split(" on ")[0] for head, text in said_in_boxes(article) for r in ranks_in(head)}
    names = [int(name) for name in re.findall(r"<div(?: class=\"named\")?>rank (\d+)</div>", article)]
    said = re.findall(r"<div>(in [^<]*)</div>", article)
    assert len(names) == len(said) == 64
    for name, now in zip(names, said, strict=True):
        assert now.startswith(waits_in.get(name, "in no operation"))
    assert len(page) < 400_000


def test_ranks_that_are_waited_for_and_not_named_have_a_box(hangs: Path) -> None:
    # GIVEN a hang of rank 1 in which rank 3 waits for rank 9, which the incident does not name
    gathered = gather([hangs]).gathered
    (_, last), (_, scene) = gathered.incidents, gathered.scenes
    assert scene
    waits = (
        Waiting("all_reduce #41 on default_pg", 1, np.array([0, 2]), np.array([1]), 1),
        Waiting("recv on pp", 1, np.array([3]), np.array([9]), 1),
    )
    reported = with_incidents(gathered, last, scenes=(dataclasses.replace(scene, waits=waits),))
    # THEN rank 9 has a box, is no culprit, and nobody is said to wait for rank 1 who waits for it
    (article,) = articles(page_of(reported))
    assert boxes(article) == ["rank 9", "2 ranks: 0, 2", "rank 3"]
    assert boxes(article, "box end") == ["rank 1"]
    assert "waited for, too; not named" in text_of(article)
    assert "3 ranks waited for these ranks" in text_of(article)


def test_victims_without_an_operation_are_counted(folder: Path) -> None:
    # GIVEN an incident of which nothing is known but its words
    victims = Victims(count=5000, ranks=tuple(range(8)))
    reported = with_incidents(gather([folder]).gathered, not_entered(victims=victims))
    # THEN the page says how many wait, and that it is not recorded in what
    text = text_of(page_of(reported))
    assert "5,000 ranks wait in operations that are not recorded" in text


def test_a_dump_says_no_length_of_a_hang(folder: Path, hangs: Path) -> None:
    (dump,), live = articles(page_at(folder)[0]), articles(page_at(hangs)[0])
    assert "not known: these recordings do not say when they were made" in text_of(dump)
    assert "What goes on at the right has no known end" in text_of(dump)
    assert "6 s after it began" in text_of(live[0])
    assert "The incident went on until" in text_of(live[0])


def test_a_recording_without_a_clock_has_no_times(tmp_path: Path) -> None:
    # GIVEN what ranks wrote when an operation had timed out: in which order they issued what, and no date
    write_clockless_log(tmp_path)
    # WHEN it is shown THEN no time is, and where each rank was is
    page = page_at(tmp_path)[0]
    (article,) = articles(page)
    shown = text_of(page[page.index("<main") :])
    assert "the recording does not say since when" in shown
    assert "does not say when operations began or ended" in shown
    assert "all_reduce #8 on default_pg" in text_of(article)
    assert '<div class="chart' not in page
    assert not re.search(r"UTC|\d\.\d+ s|took,|Operations that took longest", shown), shown


def test_operations_are_labelled_without_a_pointer(hangs: Path) -> None:
    # GIVEN the operations around the onset of a hang
    article = articles(page_at(hangs)[0])[0]
    chart = article[article.index('<div class="chart') : article.index("<details")]
    # THEN the onset is marked with its time, the axis has UTC, and each line says where its rank is
    assert re.search(r'<i class="mark onset" style="left:[\d.]+%">', chart)
    assert "onset 10:43:21.000" in text_of(chart)
    assert "UTC" in text_of(chart)
    assert text_of(chart).count("in all_reduce #9 on default_pg") == 3
    assert text_of(chart).count("in no operation") == 1
    # AND the operation of the verdict, what goes on and the onset are in the legend
    legend = text_of(article[article.index('<p class="legend">') : article.index('<div class="chart')])
    assert "the operation of the verdict" in legend
    assert "onset" in legend
    # AND a table says the same
    assert "The same in words: 4 ranks (0-3)" in text_of(article)


def test_a_quantity_has_one_unit(folder: Path) -> None:
    # GIVEN a slow rank whose iterations are long and those of whose parts are short
    spent = tuple(
        Spent(rank=r, own_s=own, transfer_s=0.0098, waiting_s=w) for r, own, w in ((5, 1.2, 0.0), (0, 0.05, 1.1))
    )
    links = (
        LinkRate(src=0, dst=1, rate=2e9, best=2.5e9, busy=0.5, paced=True),
        LinkRate(src=1, dst=0, rate=1e7, best=None, busy=0.5, paced=True),
    )
    slow = msgspec.structs.replace(SLOW, times=spent)
    gathered = dataclasses.replace(with_incidents(gather([folder]).gathered, slow), links=links)
    text = text_of(page_of(gathered))
    # THEN the unit stands in the head, and all values are in it
    for part in ("by itself, ms\nin transfers, ms\nwaiting for others, ms", "\n1,200\n10\n0\n", "\n50\n10\n1,100\n"):
        assert part in text
    assert "rate, Mbit/s" in text
    assert "\n16,000.0\n80%" in text
    assert "\n80.0\nnot known" in text


def test_it_is_said_from_when_on_iterations_took_longer(folder: Path) -> None:
    change = LevelChange(at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), iteration=1204, before_s=0.5, after_s=0.75)
    text = text_of(page_of(dataclasses.replace(gather([folder]).gathered, changes=(change,))))
    assert "How long iterations took" in text
    assert "2026-01-02 03:04:05.000 UTC\n1,204\n500\n750\n1.50" in text


def test_phase_and_microbatch_are_on_the_page(folder: Path) -> None:
    gathered = gather([folder]).gathered
    for microbatch, said in ((2, "Phase\nbackward of microbatch 2"), (None, "Phase\nbackward\n")):
        stage = Stage(iteration=60, phase="backward", microbatch=microbatch)
        page = page_of(with_incidents(gathered, msgspec.structs.replace(SLOW, stage=stage), scenes=gathered.scenes))
        assert said in text_of(page)


@pytest.mark.parametrize("name", EVERY)
def test_every_sort_of_incident_has_a_page(name: str, folder: Path) -> None:
    gathered = gather([folder]).gathered
    for status in ("open", "final", "recovered"):
        incident = msgspec.structs.replace(EVERY[name], status=status, ended=EVERY[name].ended or EVERY[name].detected)
        (article,) = articles(page_of(with_incidents(gathered, incident, scenes=gathered.scenes)))
        assert incident.id in text_of(article)


def test_a_page_without_an_incident_shows_the_job(tmp_path: Path) -> None:
    write_case(next(case for case in cases() if case.name == "finished, tp2-dp2-pp2"), tmp_path)
    page, incidents = page_at(tmp_path)
    assert not incidents
    assert "No incident." in page
    assert "The latest operations" in page


def test_nothing_is_run_or_fetched(folder: Path, hangs: Path) -> None:
    for path in (folder, hangs):
        page, _ = page_at(path)
        assert "<script" not in page
        assert "default-src 'none'; style-src 'unsafe-inline'\"" in page
        assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//|url\(|@import|javascript:|\son\w+=""", page)


def test_all_texts_of_a_job_are_texts(hangs: Path) -> None:
    # GIVEN a job whose every name and text is markup
    gathered = gather([hangs]).gathered
    evil = Culprit(rank=1, confidence=1.0, why=EVIL, host=EVIL, device=EVIL)
    incident = not_entered(
        id=EVIL, job=EVIL, culprits=(evil,), evidence=(Evidence(what=EVIL, value=EVIL, unit=EVIL, where=EVIL),),
        next=(f"`{EVIL}",), communicator=msgspec.structs.replace(not_entered().communicator, name=EVIL),
    )  # fmt: skip
    (scene, _) = gathered.scenes
    assert scene
    scene = dataclasses.replace(
        scene,
        waits=tuple(dataclasses.replace(one, what=EVIL) for one in scene.waits),
        stacks={1: [Stack(EVIL, True, False, [EVIL])]},
    )
    reported = dataclasses.replace(
        with_incidents(gathered, incident, incident, scenes=(scene, scene)),
        job=EVIL, hosts=dict.fromkeys(range(4), EVIL), comms=(EVIL,) * len(gathered.comms),
        operations=tuple(dataclasses.replace(one, comm=EVIL) for one in gathered.operations), missing=EVIL,
    )  # fmt: skip
    notes = [{"path": EVIL, "format": EVIL, "state": "damaged", "what": EVIL}]
    # WHEN a page is made of it THEN no element of theirs is in it
    page = page_of(reported, notes)
    assert "<script" not in page
    assert "<img" not in page
    assert "&lt;script&gt;" in page
    # AND no control character, nor one that turns the direction of a line
    reported = with_incidents(gathered, not_entered(culprits=(msgspec.structs.replace(RANK_5, why="a\x1b[2J\u202eb"),)))
    assert not re.search("[\x00-\x08\x1b\u202e]", page_of(reported))


def test_a_name_like_a_place_of_the_page_is_a_name(folder: Path) -> None:
    page = page_of(dataclasses.replace(gather([folder]).gathered, job="@@BODY@@ @@STYLE@@"))
    assert "<h1>@@BODY@@ @@STYLE@@</h1>" in page


def test_the_folder_is_no_name_where_folders_are_left_out(folder: Path, tmp_path: Path) -> None:
    # GIVEN recordings in a folder with a name of its own
    shutil.copytree(folder, tmp_path / "merger-with-acme")
    assert "merger-with-acme-1" in page_at(tmp_path / "merger-with-acme")[0]
    # WHEN folders are left out THEN the job is not called like it
    page, (incident,) = page_at(tmp_path / "merger-with-acme", ["paths"])
    assert "acme" not in page
    assert incident.id == "recording-1"


@pytest.mark.parametrize(
    ("ranks", "text"), [([], ""), ([3], "3"), ([0, 1, 2, 5], "0-2, 5"), (list(range(0, 80, 2)), "and 8 more")]
)
def test_ranges_are_short(ranks: list[int], text: str) -> None:
    assert ranges(np.array(ranks, np.int64)).endswith(text)


@pytest.mark.parametrize(
    ("values", "unit"), [([0.052, 1.3, 0.06], "ms"), ([3.0, 200.0], "s"), ([2e-5, 1e-4], "µs"), ([], "ms")]
)
def test_a_unit_fits_the_usual_value(values: list[float], unit: str) -> None:
    assert unit_of(values).name == unit


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium (Debian: apt-get install chromium)")
@pytest.mark.parametrize("width", [390, 1400])
def test_a_browser_shows_it_at_any_width(width: int, hangs: Path, tmp_path: Path) -> None:
    # GIVEN a page within a frame as wide as a phone or a screen
    page, _ = page_at(hangs)
    frame = json.dumps(page).replace("<", "\\u003c")
    (tmp_path / "frame.html").write_text(
        f"""<body style="margin:0"><iframe style="width:{width}px;height:900px;border:0"></iframe><pre></pre><script>
const frame = document.querySelector("iframe");
frame.onload = () => {{
  const page = frame.contentDocument.documentElement;
  const parts = [...page.querySelectorAll("h2, p, .box, .chart, dl")];
  document.querySelector("pre").textContent = JSON.stringify({{
    width: page.scrollWidth, widest: Math.max(...parts.map(part => part.getBoundingClientRect().right)),
    bars: page.querySelectorAll("path").length,
  }});
}};
frame.srcdoc = {frame};
</script></body>""",
        encoding="utf-8",
    )
    # WHEN a browser shows it
    shown = _dom(tmp_path / "frame.html", tmp_path)
    found = json.loads(unescape(shown[shown.index("<pre>") + 5 : shown.index("</pre>")]))
    # THEN nothing but tables in their own frames is wider than that
    assert found["width"] <= width
    assert found["widest"] <= width
    assert found["bars"] > 0


def _dom(path: Path, tmp_path: Path) -> str:
    assert CHROMIUM
    command: list[Any] = [
        CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
        "--window-size=1500,1000", "--virtual-time-budget=5000", "--dump-dom", path.as_uri(),
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=True).stdout
