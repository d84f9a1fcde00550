"""`whichrank env`, `agent` and `stacks`, as a job script uses them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from incident_cases import incident
from rank_process import RankProcess, eventually

from whichrank.model.codes import Flag
from whichrank.model.commands import Reply
from whichrank.model.incident import Cause, Culprit, encode_incident
from whichrank.model.telemetry import Batch
from whichrank.ring.folder import JobFolder
from whichrank.wire.zmq_transport import ZmqAnalyzerEnd

WHICHRANK = [sys.executable, "-m", "whichrank"]
RANK = f"{sys.executable} {Path(__file__).parents[1] / 'unit' / 'ring_writer.py'}"

pytestmark = pytest.mark.integration


@pytest.fixture
def shm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    base = tmp_path / "shm"
    monkeypatch.setenv("WHICHRANK_SHM", str(base))
    for name in ("WHICHRANK_JOB", "WHICHRANK_DIR", "WHICHRANK_CONNECT", "LD_PRELOAD"):
        monkeypatch.delenv(name, raising=False)
    return base


@pytest.fixture
def analyzer() -> Iterator[ZmqAnalyzerEnd]:
    end = ZmqAnalyzerEnd(["127.0.0.1:0"])
    yield end
    end.close()


def whichrank(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*WHICHRANK, *arguments], capture_output=True, text=True, timeout=60, check=False)


def hear(analyzer: ZmqAnalyzerEnd, batches: list[Batch]) -> None:
    for batch, _ in analyzer.receive(0.05):
        batches.append(batch)
        analyzer.reply(batch.agent, Reply(4, batch.sequence))


def test_env_gives_what_ranks_and_agents_need(shm: Path) -> None:
    done = subprocess.run(
        [
            "sh",
            "-c",
            f'eval "$({" ".join(WHICHRANK)} env --job "my.job-1" --join head:1 --insecure)"\n'
            'env; stat -c "mode %a" $WHICHRANK_DIR',
        ],
        env={**os.environ, "LD_PRELOAD": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    found = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert found["WHICHRANK_JOB"] == "my.job-1"
    assert found["WHICHRANK_DIR"] == str(shm / "my.job-1")
    assert found["WHICHRANK_CONNECT"] == "tcp://head:1"
    assert "mode 700" in done.stdout


@pytest.mark.parametrize("is_file", [False, True])
def test_env_takes_where_the_analyzer_listens_from_the_environment(shm: Path, tmp_path: Path, *, is_file: bool) -> None:
    # GIVEN what a run that serves has written, as a Slurm or Kubernetes secret hands it on
    key = "ab" * 32
    join = tmp_path / "join"
    join.write_text(f"head:1/{key}")
    done = subprocess.run(
        [*WHICHRANK, "env"],
        env={**os.environ, "WHICHRANK_JOIN": f"@{join}" if is_file else f"head:1/{key}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "export WHICHRANK_CONNECT=tcp://head:1" in done.stdout.splitlines()
    assert f"export WHICHRANK_KEY={key}" in done.stdout.splitlines()


def test_env_is_quoted_and_keeps_what_is_preloaded(shm: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WHICHRANK_SHM", str(tmp_path / "a folder; $HOME"))
    done = subprocess.run(
        [*WHICHRANK, "env"],
        env={**os.environ, "LD_PRELOAD": "/lib/absent.so"},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert any(line.startswith(f"export WHICHRANK_DIR='{tmp_path}/a folder; $HOME/") for line in lines)
    assert all(line.startswith("export LD_PRELOAD=/lib/absent.so") for line in lines if "LD_PRELOAD" in line)


def test_agent_of_a_launcher_that_cannot_be_wrapped(shm: Path, analyzer: ZmqAnalyzerEnd, tmp_path: Path) -> None:
    # GIVEN a job script as for Slurm, with an agent beside the ranks and no `whichrank run`
    orders = tmp_path / "orders"
    os.mkfifo(orders)
    to_rank = os.open(orders, os.O_RDWR)
    script = (
        f'eval "$({" ".join(WHICHRANK)} env --job s1 --insecure --join {analyzer.addresses[0]})"\n'
        f"{' '.join(WHICHRANK)} agent &\n"
        f"{RANK} $WHICHRANK_DIR 0 1 <{orders} >&2\n"
        "wait\n"
    )
    job = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True)
    batches: list[Batch] = []

    def kinds() -> list[str]:
        hear(analyzer, batches)
        return [event.kind for batch in batches for event in batch.events]

    # THEN the agent says of the rank, and ends by itself when the rank has ended
    eventually(lambda: "launched" in kinds(), 60)
    os.write(to_rank, b"exit 0\n")
    eventually(lambda: [kinds(), job.poll()][1] is not None, 60)
    os.close(to_rank)
    assert job.communicate() == ("", None)
    assert job.returncode == 0
    assert {batch.job for batch in batches} == {"s1"}
    assert kinds() == ["launched", "exit"]
    # and the folder goes with the next job
    whichrank("env")
    assert "s1" not in [path.name for path in shm.iterdir()]


def test_agent_on_another_node_makes_the_folder_and_takes_it_away(shm: Path, analyzer: ZmqAnalyzerEnd) -> None:
    agent = subprocess.Popen(
        [*WHICHRANK, "agent", "--job", "n2", "--connect", analyzer.addresses[0], "--insecure", "--wait"]
    )
    eventually((shm / "n2").is_dir)
    batches: list[Batch] = []

    def heard() -> bool:
        hear(analyzer, batches)
        return bool(batches)

    eventually(heard)
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(20) == 0
    assert not (shm / "n2").exists()


def test_agent_whose_run_has_gone_before_it_began_does_not_stay(shm: Path, analyzer: ZmqAnalyzerEnd) -> None:
    # GIVEN a run that was killed just when it had started its agent, and whose folder has been removed since
    run = subprocess.Popen(["true"])
    run.wait()

    done = whichrank(
        "agent", "--job", "n3", "--connect", analyzer.addresses[0], "--insecure", "--wait", "--run-pid", str(run.pid)
    )

    # THEN the agent ends by itself and leaves nothing
    assert done.returncode == 0
    assert not (shm / "n3").exists()


def test_agent_says_what_it_misses(shm: Path) -> None:
    assert "which job?" in whichrank("agent").stderr
    done = whichrank("agent", "--job", "x")
    assert done.returncode == 2
    assert "where does the analyzer listen?" in done.stderr
    assert whichrank("agent", "--job", "../x", "--connect", "1").returncode == 2


def test_stacks(shm: Path) -> None:
    folder = JobFolder.create("job", owner_pid=os.getpid(), base=shm)
    with RankProcess(folder.path, 0, 2), RankProcess(folder.path, 1, 2):
        done = whichrank("stacks")
        assert done.returncode == 0
        assert "rank 0 (pid" in done.stdout
        assert "rank 1 (pid" in done.stdout
        assert "ring_writer.py:" in done.stdout
        (entry,) = json.loads(whichrank("stacks", "job", "--rank", "1", "--json").stdout)
        assert entry["rank"] == 1
        assert entry["stacks"][0]["main"] is True
        absent = whichrank("stacks", "--rank", "7")
        assert (absent.returncode, "ranks here: 0, 1" in absent.stderr) == (2, True)
        assert whichrank("stacks", "--rank", "1", "--suspects").returncode == 2


@pytest.mark.parametrize(
    "wait", [("begin 0", "issued", "wait"), (f"begin 0 {int(Flag.FUTURE_TAKEN)}", "issued", "lock")]
)
def test_stacks_of_suspects(shm: Path, tmp_path: Path, wait: tuple[str, ...]) -> None:
    # GIVEN a rank that waits, by a sensor's mark or as DDP does, for an op which the other has not entered
    folder = JobFolder.create("job", owner_pid=os.getpid(), output=str(tmp_path), base=shm)
    with RankProcess(folder.path, 0, 2) as first, RankProcess(folder.path, 1, 2):
        assert "no suspect" in whichrank("stacks", "--suspects").stderr
        for line in ("comm dp 0 0,1", *wait):
            first.do(line)

        def suspects() -> list[int]:
            return [entry["rank"] for entry in json.loads(whichrank("stacks", "--suspects", "--json").stdout)]

        eventually(lambda: suspects() == [1])
        # WHEN an incident names somebody, THEN that one is meant
        named = incident(Cause.NOT_ENTERED, culprits=(Culprit(rank=0, confidence=1.0, why="is late"),))
        (tmp_path / "incidents.jsonl").write_bytes(encode_incident(named) + b"\n")
        assert suspects() == [0]


def test_suspects_of_several_runs_that_belong_together(shm: Path, tmp_path: Path) -> None:
    # GIVEN two runs on this node, the older of which analyzes, and a newer job that is well
    output, host = tmp_path / "first", socket.gethostname()
    output.mkdir()
    first = JobFolder.create("first", owner_pid=os.getpid(), output=str(output), base=shm)
    second = JobFolder.create("second", owner_pid=os.getpid(), output=str(tmp_path / "second"), base=shm)
    well = JobFolder.create("well", owner_pid=os.getpid(), base=shm)
    with (
        RankProcess(first.path, 0, 2),
        RankProcess(second.path, 1, 2) as late,
        RankProcess(well.path, 1, 2),
    ):
        # WHEN its alert names a rank of the other
        who = Culprit(rank=1, confidence=1.0, why="is late", host=host, pid=late.pid)
        (output / "incidents.jsonl").write_bytes(encode_incident(incident(Cause.NOT_ENTERED, culprits=(who,))) + b"\n")
        # THEN that one is meant, whichever job is the newest
        (entry,) = json.loads(whichrank("stacks", "--suspects", "--json").stdout)
        assert (entry["job"], entry["rank"], entry["pid"]) == ("second", 1, late.pid)
        # AND of a job that has no suspect it is said where they are
        done = whichrank("stacks", "--suspects", "first")
        assert (done.returncode, done.stdout) == (5, "")
        assert "an open alert of job first names rank 1: whichrank stacks --suspects second\n" in done.stderr
        # WHEN it names one that is on another node THEN it is said, too
        away = Culprit(rank=1, confidence=1.0, why="is late", host="another", pid=late.pid)
        (output / "incidents.jsonl").write_bytes(encode_incident(incident(Cause.NOT_ENTERED, culprits=(away,))) + b"\n")
        done = whichrank("stacks", "--suspects")
        assert (done.returncode, done.stdout) == (5, "")
        assert "no suspect in 3 jobs on this node\n" in done.stderr
        assert "an open alert of job first names rank 1: `whichrank why` tells more\n" in done.stderr


def test_stacks_without_a_job(shm: Path) -> None:
    done = whichrank("stacks")
    assert done.returncode == 2
    assert "no job runs on this node" in done.stderr


def test_stack_of_a_dead_rank_is_refused_in_one_sentence(shm: Path) -> None:
    folder = JobFolder.create("job", owner_pid=os.getpid(), base=shm)
    with RankProcess(folder.path, 0, 1):
        pass
    done = whichrank("stacks")
    assert done.returncode == 5
    assert "has ended, so it has no stack" in done.stdout
