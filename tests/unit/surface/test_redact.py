"""What is left out of pages and exports: hosts in every form, folders of files, and nothing else."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import msgspec
import pytest
from taped_run import HOST, JOB, page_at, two_hangs

from whichrank.model.evidence import Evidence
from whichrank.model.telemetry import Stack
from whichrank.surface.cli import main
from whichrank.surface.export.perfetto import trace_of
from whichrank.surface.export.tables import csv_of, json_of
from whichrank.surface.hidden_hosts import HiddenHosts
from whichrank.surface.redact import redacted
from whichrank.surface.report.gather import Gathered
from whichrank.surface.report.make import gather
from whichrank.surface.report.page import page_of
from whichrank.testbed.bench.dumps.cases import cases
from whichrank.testbed.bench.dumps.compare import write_case

FORMS = ("gpu-node-17", "acme.example", "10.1.2.3", "fe80::17", "4242@gpu", "GPU-NODE-17")
"""What must not be found: the short name, the domain, addresses, a process on a host."""


@pytest.fixture(name="gathered", scope="module")
def _gathered(tmp_path_factory: pytest.TempPathFactory) -> Gathered:
    folder = tmp_path_factory.mktemp("dumps")
    write_case(next(case for case in cases() if case.name == "host stopped, tp2-dp2-pp2, whole"), folder)
    return gather([folder]).gathered


def with_lines(gathered: Gathered, *lines: str) -> Gathered:
    """With these lines of logs in the evidence, in what is said of the culprit, and in a command."""
    (incident,) = gathered.incidents
    (culprit,) = incident.culprits
    reported = msgspec.structs.replace(
        incident,
        culprits=(msgspec.structs.replace(culprit, why="; ".join(lines)),),
        evidence=tuple(Evidence(what="log", value=line, where="rank 4") for line in lines),
        next=tuple(lines),
    )
    return dataclasses.replace(gathered, incidents=(reported,))


@pytest.mark.parametrize("is_recorded", [True, False])
@pytest.mark.parametrize("command", ["report", "perfetto", "json", "csv"])
def test_no_form_of_a_host_is_left(
    command: str, is_recorded: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    # GIVEN a run whose job, ids, commands and tables name a host
    two_hangs(tmp_path / "run", is_recorded=is_recorded)
    out = tmp_path / "out"
    wanted = ["report"] if command == "report" else ["export", "--format", command]
    main([*wanted, str(tmp_path / "run"), "-o", str(out)])
    if is_recorded or command != "csv":
        assert "gpu-node-17" in out.read_text()
    # WHEN hosts are left out
    main([*wanted, str(tmp_path / "run"), "-o", str(out), "--force", "--redact", "hosts"])
    # THEN the name is nowhere, neither in full nor in short, and one word stands for it everywhere
    text = out.read_text()
    assert not [form for form in FORMS if form.lower() in text.lower()]
    if is_recorded or command != "csv":
        assert "host-0" in text
    if command != "csv":
        assert "20260102-030405-host-0-4242" in text
    assert "Traceback" not in capfd.readouterr().err


def test_hosts_are_left_out_of_every_text(gathered: Gathered) -> None:
    # GIVEN a host in every text that a page or an export may hold
    line = (
        f"4242@{HOST}: {HOST}:29500, gpu-node-17, GPU-NODE-17, 10.1.2.3:80 [fe80::17]:80, gpu-node-23, x.acme.example"
    )
    (scene,) = gathered.scenes
    assert scene
    scene = dataclasses.replace(
        scene,
        stacks={4: [Stack(line, True, False, [line])]},
        waits=tuple(dataclasses.replace(one, what=line) for one in scene.waits),
    )
    full = dataclasses.replace(
        with_lines(gathered, line), job=line, hosts=dict.fromkeys(range(8), HOST), comms=(line,) * len(gathered.comms),
        scenes=(scene,), operations=tuple(dataclasses.replace(one, comm=line) for one in gathered.operations),
    )  # fmt: skip
    notes = [{"path": f"/logs/{HOST}/rank_0", "format": "", "state": "damaged", "what": line}]
    assert "gpu-node-17" in page_of(full, notes)
    # WHEN hosts are left out THEN nothing of one is anywhere
    reported, said = redacted(full, notes, ["hosts"])
    for text in (
        page_of(reported, said),
        *(b"".join(export(reported)).decode() for export in (trace_of, json_of, csv_of)),
    ):
        assert not [form for form in (*FORMS, "gpu-node", "acme") if form.lower() in text.lower()]


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("connect to db7.corp.example<29500> failed", "connect to a host<29500> failed"),
        ("connect to db7<29500> from eth0:10.9.8.7<0>", "connect to a host<29500> from eth0:an address<0>"),
        ("RuntimeError: cannot reach db7.rack2.dc1.", "RuntimeError: cannot reach a host."),
        ("no answer of ann@db7.corp.example", "no answer of ann@a host"),
        ("the client socket cannot connect to [db7]:29500", "the client socket cannot connect to [a host]:29500"),
        ("tcp://db7.corp:29500 and db7.corp:29500", "tcp://a host:29500 and a host:29500"),
        ("DB7.CORP.EXAMPLE is gone, n1.acme.com too", "a host is gone, host-0 too"),
        ("from 2001:db8::17 and ::1, at 12:30:05", "from an address and an address, at 12:30:05"),
        ("host db7 and store.acme.com", "host a host and a host"),
        # names that are none of a host
        ("torch.distributed.DistBackendError at train.py:88, 2.10.0", None),
        ("[torch.distributed.elastic.multiprocessing.api] failed", None),
        ("INFO:torch.distributed.run:874 and logging.handlers.queue:12", None),
        ("in acme_train.data.loader, mypkg.core.trainer.loop, layer3.conv1.weight", None),
        ("issued in step (train.py:88) < run (a.b.py:3) < main (/opt/a.b.c/main.py:1)", None),
        ("in ../torch/csrc/ProcessGroupNCCL.cpp:1970, libnccl.so.2, 1.5 s of 3.25, took 12:30:05", None),
        ("c10::Error in c10d::add of std::vector, n12 and cuda:0", None),
    ],
)  # fmt: skip
def test_hosts_that_only_a_log_names_are_known_by_how_they_are_written(line: str, left: str | None) -> None:
    assert HiddenHosts(["n1"]).hide(line) == (line if left is None else left)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (JOB, "20260102-030405-host-0-4242"),
        (f"on {HOST}: kill -CONT 3", "on host-0: kill -CONT 3"),
        ("gpu-node-17.other.domain and trace_gpu-node-17_3.log", "host-0 and trace_host-0_3.log"),
        ("gpu-node-17.log", "host-0.log"),
        ("gpu-node-18 and gpu-node-171", "a host and a host"),
        ("acme.example", "a host"),
        ("xgpu-node-17x", "xgpu-node-17x"),
    ],
)
def test_a_known_host_is_replaced_in_every_form(text: str, left: str) -> None:
    assert HiddenHosts([HOST]).hide(text) == left


def test_a_host_whose_name_is_cut_in_that_of_the_job_is_found() -> None:
    long = "pod-training-of-the-large-model-0"
    assert HiddenHosts([long]).hide(f"20260102-030405-{long[:24]}-7") == "20260102-030405-host-0-7"


def test_what_is_left_out_changes_no_number(gathered: Gathered) -> None:
    # GIVEN hosts with short names
    full = dataclasses.replace(gathered, hosts={0: "n1", 1: "a", 2: "node-1"}, job="n12 of node-1 at a")
    reported, _ = redacted(full, [], ["hosts", "paths"])
    # THEN words that only begin like one are as they were, and so is what is no text
    assert reported.job == "n12 of host-2 at host-0"
    assert reported.spans is full.spans
    (before,), (after,) = full.incidents, reported.incidents
    assert (after.cause, after.kind, after.onset, after.victims) == (
        before.cause,
        before.kind,
        before.onset,
        before.victims,
    )


def test_folders_with_spaces_and_brackets_are_left_out(gathered: Gathered) -> None:
    # GIVEN files in folders with names that end a path elsewhere
    frames = ["step (/home/ann lee/my (old) code/train.py:88)", "run (my lib/x.py:3)", "main (top.py:1)"]
    (scene,) = gathered.scenes
    assert scene
    full = dataclasses.replace(
        gathered, scenes=(dataclasses.replace(scene, stacks={4: [Stack("MainThread", True, False, frames)]}),)
    )
    what = "beside '/data/ann lee/dumps of ann/trace_2'"
    notes = [{"path": "/data/ann lee/dumps of ann/trace_1", "format": "", "state": "damaged", "what": what}]
    reported, said = redacted(full, notes, ["paths"])
    # THEN only the names of files are left
    assert reported.scenes[0]
    assert reported.scenes[0].stacks[4][0].frames == ["step (train.py:88)", "run (x.py:3)", "main (top.py:1)"]
    assert said == ({"path": "trace_1", "format": "", "state": "damaged", "what": "beside 'trace_2'"},)
    assert not re.search(r"\bann\b", page_of(reported, said))


def test_what_cannot_be_left_out_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for command in ("report", "export"):
        assert main([command, str(tmp_path), "--redact", "names"]) == 2
        assert "'names' cannot be left out" in capfd.readouterr().err


def test_a_page_made_by_hand_is_as_one_of_the_command(tmp_path: Path) -> None:
    two_hangs(tmp_path)
    page, incidents = page_at(tmp_path, ["hosts"])
    assert {one.job for one in incidents} == {"20260102-030405-host-0-4242"}
    assert "gpu-node" not in page
