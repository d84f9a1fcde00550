"""The page of a report, in a real browser where there is one."""

from __future__ import annotations

import base64
import dataclasses
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from whichrank.bench.dumps.cases import cases
from whichrank.bench.dumps.compare import write_case
from whichrank.bench.dumps.pages import browser
from whichrank.model.incident import Evidence
from whichrank.model.telemetry import Stack
from whichrank.surface.report.make import gather, make_report
from whichrank.surface.report.page import page_of, ranges

CHROMIUM = browser()
EVIL = '</script><script>document.title="taken"</script><img src=x onerror="document.title=\'taken\'">'


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dumps")
    write_case(next(case for case in cases() if case.name == "host stopped, tp2-dp2-pp2, whole"), folder)
    return folder


def data_in(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    data: dict[str, Any] = json.loads(found.group(1))
    return data


def test_a_page_holds_all_that_it_shows(folder: Path) -> None:
    # GIVEN dumps of a hang WHEN a page is made of them
    page, (incident,), is_complete = make_report([folder])
    assert is_complete
    data = data_in(page)
    # THEN verdict, waits and operations are in it, and nothing is fetched
    assert data["incidents"][0]["culprits"][0]["rank"] == incident.culprits[0].rank == 4
    assert data["waits"][0]["for"] == "4"
    assert data["lanes"]["count"] > 1000
    # the round of the verdict can be found among the operations
    comm, counter = data["incidents"][0]["round"]
    spans = np.frombuffer(base64.b64decode(data["lanes"]["counter"]), "<u4")
    assert (spans[np.frombuffer(base64.b64decode(data["lanes"]["comm"]), "<u4") == comm] == counter).any()
    # and waits that are called alike are one
    assert len({(one["what"], one["distance"]) for one in data["waits"]}) == len(data["waits"])
    assert {note["state"] for note in data["notes"]} == {"read"}
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//|url\(|@import|fetch\(|XMLHttpRequest""", page)


def test_names_and_folders_can_be_left_out(folder: Path) -> None:
    gathered = gather([folder])
    hosts = dict.fromkeys(range(8), "gpu-node-17.internal")
    stacks = {4: [Stack("MainThread", True, False, ["step (/home/ann/secret/train.py:88)", "run (lib/x.py:3)"])]}
    full = dataclasses.replace(gathered, hosts=hosts, stacks=stacks)
    notes = [{"path": "/data/ann/trace_1", "format": "", "state": "read"}]
    assert "gpu-node-17" in page_of(full, (), notes)
    page = page_of(full, ("hosts", "paths"), notes)
    assert "gpu-node-17" not in page
    assert "ann" not in re.sub(r"[A-Za-z0-9+/=]{200,}", "", json.dumps(data_in(page)))
    assert "step (train.py:88)" in page
    assert data_in(page)["hosts"]["0"] == "host-0"


def test_what_is_left_out_changes_no_column_and_no_other_word(folder: Path) -> None:
    # GIVEN hosts with short names, and addresses in lines of logs
    gathered = dataclasses.replace(gather([folder]), hosts={0: "n1", 1: "a", 2: "node-1"}, job="n12 of node-1 at a")
    what = "peer 10.1.2.3<4411> on n1.acme.com"
    notes = [{"path": "dumps/acme/trace_1", "format": "", "state": "damaged", "what": what}]
    plain, page = data_in(page_of(gathered, (), notes)), data_in(page_of(gathered, ("hosts", "paths"), notes))
    # THEN columns are as they were, and so are words that only begin like a name
    assert (page["lanes"], page["heat"]) == (plain["lanes"], plain["heat"])
    assert page["job"] == "n12 of host-2 at host-0"
    assert page["notes"][0]["what"] == "peer an address<4411> on host-1"
    assert page["notes"][0]["path"] == "trace_1"


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("connect to db7.corp.example<29500> failed", "connect to a host<29500> failed"),
        ("connect to db7<29500> from eth0:10.9.8.7<0>", "connect to a host<29500> from eth0:an address<0>"),
        ("RuntimeError: cannot reach db7.rack2.dc1.", "RuntimeError: cannot reach a host."),
        ("no answer of ann@db7.corp.example", "no answer of ann@a host"),
        ("tcp://db7.corp:29500 and db7.corp:29500", "tcp://a host:29500 and a host:29500"),
        ("DB7.CORP.EXAMPLE is gone, n1.acme.com too", "a host is gone, host-0 too"),
        ("torch.distributed.DistBackendError at train.py:88, 2.10.0", None),
        ("issued in step (train.py:88) < run (a.b.py:3) < main (/opt/a.b.c/main.py:1)", None),
        ("in ../torch/csrc/ProcessGroupNCCL.cpp:1970, libnccl.so.2, 1.5 s of 3.25, took 12:30:05", None),
    ],
)
def test_hosts_that_logs_name_are_left_out(line: str, left: str | None, folder: Path) -> None:
    # GIVEN a line of a log in the evidence, and an exception in a verdict
    gathered = dataclasses.replace(gather([folder]), hosts={0: "n1"})
    (incident,) = gathered.incidents
    (culprit,) = incident.culprits
    told = msgspec.structs.replace(
        incident,
        culprits=(msgspec.structs.replace(culprit, why=line),),
        evidence=(Evidence(what="log", value=line, where="rank 4"),),
    )
    # WHEN hosts are left out
    page = data_in(page_of(dataclasses.replace(gathered, incidents=(told,)), ["hosts"]))
    # THEN names of hosts are, wherever the line is quoted, and nothing else
    (shown,) = page["incidents"]
    left = line if left is None else left
    assert (shown["evidence"][0]["value"], shown["culprits"][0]["why"]) == (left, left)
    assert shown["paragraph"].count(left) == 2


def test_folders_with_spaces_and_brackets_are_left_out(folder: Path) -> None:
    # GIVEN files in folders with names that end a path elsewhere
    frames = ["step (/home/ann lee/my (old) code/train.py:88)", "run (my lib/x.py:3)", "main (top.py:1)"]
    gathered = dataclasses.replace(gather([folder]), stacks={4: [Stack("MainThread", True, False, frames)]})
    what = "beside '/data/ann lee/dumps of ann/trace_2'"
    notes = [{"path": "/data/ann lee/dumps of ann/trace_1", "format": "", "state": "damaged", "what": what}]
    page = data_in(page_of(gathered, ("paths",), notes))
    # THEN only the names of files are left
    assert page["stacks"]["4"][0]["frames"] == ["step (train.py:88)", "run (x.py:3)", "main (top.py:1)"]
    assert page["notes"] == [{"path": "trace_1", "format": "", "state": "damaged", "what": "beside 'trace_2'"}]


def test_the_folder_is_no_name_where_folders_are_left_out(folder: Path, tmp_path: Path) -> None:
    # GIVEN recordings in a folder with a name of its own
    shutil.copytree(folder, tmp_path / "merger-with-acme")
    assert "merger-with-acme-1" in make_report([tmp_path / "merger-with-acme"])[0]
    # WHEN folders are left out THEN the job is not called like it
    page, (incident,), _ = make_report([tmp_path / "merger-with-acme"], ["paths"])
    assert "acme" not in page
    assert (data_in(page)["job"], incident.id) == ("recording", "recording-1")


def test_a_name_like_a_place_of_the_page_is_a_name(folder: Path) -> None:
    gathered = dataclasses.replace(gather([folder]), job="@@SCRIPT@@ @@DATA@@")
    page = page_of(gathered)
    assert data_in(page)["job"] == "@@SCRIPT@@ @@DATA@@"


def test_what_a_job_calls_itself_is_text(folder: Path) -> None:
    gathered = dataclasses.replace(gather([folder]), job=EVIL)
    page = page_of(gathered)
    assert EVIL not in page
    assert data_in(page)["job"] == EVIL


@pytest.mark.parametrize(
    ("ranks", "text"), [([], ""), ([3], "3"), ([0, 1, 2, 5], "0-2, 5"), (list(range(0, 80, 2)), "and 8 more")]
)
def test_ranges_are_short(ranks: list[int], text: str) -> None:
    assert ranges(np.array(ranks, np.int64)).endswith(text)


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium (Debian: apt-get install chromium)")
@pytest.mark.parametrize("scheme", [0, 1], ids=["dark", "light"])
def test_a_browser_shows_it_without_an_error(scheme: int, folder: Path, tmp_path: Path) -> None:
    # GIVEN a page of a job with a hostile name
    path = tmp_path / "report.html"
    notes = [{"path": EVIL, "format": "", "state": "ignored"}]
    path.write_text(page_of(dataclasses.replace(gather([folder]), job=EVIL), (), notes), encoding="utf-8")
    # WHEN a browser opens it
    assert CHROMIUM
    command = [
        CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
        "--enable-logging=stderr", f"--blink-settings=preferredColorScheme={scheme}", "--virtual-time-budget=2000",
        "--dump-dom", path.as_uri(),
    ]  # fmt: skip
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    # THEN all parts are there, the name is text, and the script had no complaint
    assert "CONSOLE" not in shown.stderr
    for title in ("Who waits for whom", "Operations of each rank", "Operations that took longest", "What was read"):
        assert f"<h2>{title}</h2>" in shown.stdout
    assert shown.stdout.count("<canvas") == 1
    assert "<title>whichrank: &lt;/script&gt;" in shown.stdout
    assert "rank 4 had not entered" in shown.stdout
