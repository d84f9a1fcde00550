"""`whichrank run`: the job stays what it was, the verdict is written, and whatever of ours fails, the job goes on."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rank_launcher import watches
from rank_process import eventually

from whichrank.ring.folder import JobFolder

PROGRAM = Path(__file__).with_name("run_program.py")
RANK = f"{sys.executable} {Path(__file__).parents[1] / 'unit' / 'ring_writer.py'} $WHICHRANK_DIR"
LAUNCHER = f"{sys.executable} {Path(__file__).parents[1] / 'unit' / 'rank_launcher.py'}"

# A rank that an agent has seen, and that ends with code 7.
DIES = f"{LAUNCHER} 7 {RANK}"

pytestmark = pytest.mark.integration


class Place:
    """A working directory and a base for rings; starts runs in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.shm = path / "shm"
        self.output = path / "out"
        self.environ = {**os.environ, "WHICHRANK_SHM": str(self.shm), "NO_COLOR": "1"}
        for name in [name for name in self.environ if name in ("WHICHRANK_JOB", "WHICHRANK_DIR", "WHICHRANK_CONNECT")]:
            del self.environ[name]

    def command(self, *options: str, shell: str | None = None) -> list[str]:
        job = ["--", "sh", "-c", shell] if shell is not None else []
        return [sys.executable, str(PROGRAM), "--output", str(self.output), *options, *job]

    def run(self, shell: str, *options: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*options, shell=shell),
            env=self.environ | environ,
            cwd=self.path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def start(self, shell: str, *options: str, **environ: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*options, shell=shell),
            env=self.environ | environ,
            cwd=self.path,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def incidents(self) -> list[dict[str, object]]:
        path = self.output / "incidents.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def summary(self) -> dict[str, object]:
        found: dict[str, object] = json.loads((self.output / "job.json").read_text())
        return found

    def agents(self) -> list[int]:
        """Pids of agents that work on this place."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    line, environ = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
                except OSError:
                    continue
                if b"whichrank\0agent\0" in line and f"WHICHRANK_SHM={self.shm}\0".encode() in environ:
                    found.append(int(entry.name))
        return found


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    found = Place(tmp_path)
    yield found
    eventually(lambda: not found.agents())


@pytest.mark.parametrize(
    ("shell", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -TERM $$", -15), ("kill -KILL $$", -9), ("exit 255", 255)]
)
def test_exit_status_is_the_jobs(place: Place, shell: str, code: int) -> None:
    done = place.run(shell)
    assert done.returncode == code
    assert place.summary()["exit_status"] == (code if code >= 0 else 128 - code)
    assert done.stderr.count("\n") == 1
    assert "no rank was seen" in done.stderr
    assert list(place.shm.iterdir()) == []


def test_streams_arguments_and_environment_are_the_jobs(place: Place) -> None:
    done = subprocess.run(
        [
            *place.command(),
            "--",
            sys.executable,
            "-c",
            "import sys; print(sys.argv[1:], sys.stdin.read())",
            "a b",
            "--quiet",
        ],
        env=place.environ,
        cwd=place.path,
        input="typed",
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "['a b', '--quiet'] typed\n"


def test_job_is_reported_where_it_is(place: Place) -> None:
    lines = place.run("echo $WHICHRANK_JOB; echo $WHICHRANK_DIR; echo $PPID; stat -c %a $WHICHRANK_DIR").stdout.split()
    assert lines[1] == str(place.shm / lines[0])
    assert lines[3] == "700"


def test_descriptors_of_the_caller_reach_the_job(place: Place) -> None:
    read, write = os.pipe()
    subprocess.run(
        place.command(shell=f"echo through > /dev/fd/{write}"), env=place.environ, pass_fds=[write], check=True
    )
    os.close(write)
    assert os.read(read, 100) == b"through\n"
    os.close(read)


@pytest.mark.parametrize(("name", "code"), [("no-such-command", 127), ("/etc/hostname", 126)])
def test_command_that_cannot_be_started(place: Place, name: str, code: int) -> None:
    done = subprocess.run(
        [*place.command("--quiet"), "--", name], env=place.environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == code
    assert name in done.stderr
    assert "Traceback" not in done.stderr


def test_dead_rank_is_written_and_said(place: Place) -> None:
    # GIVEN a job of two ranks, one of which ends with code 7
    done = place.run(f"{DIES} 0 2; printf 'comm dp 1 0,1\\nop 0 5\\nexit 0\\n' | {RANK} 1 2; exit 5")
    # THEN the incident stands once in the file, the paragraph on stderr, and the summary has the job
    assert done.returncode == 5
    assert [incident["id"] for incident in place.incidents()] == ["alert-0"]
    assert "ALERT failure: rank 0 " in done.stderr
    assert " has left the job" in done.stderr
    assert "ended with status 1792" in done.stderr
    assert f"watched 2 ranks; 1 alert; read again: whichrank why {place.output}" in done.stderr
    summary = place.summary()
    assert (summary["ranks"], summary["world_size"], summary["exit_status"]) == ([0, 1], 2, 5)
    assert summary["incidents"] == ["alert-0"]
    assert summary["lost_records"] == 0


def test_folder_of_another_job_is_said_and_told_apart(place: Place) -> None:
    # GIVEN a folder that holds the alert of a job
    place.run(f"{DIES} 0 1; true")
    first = str(place.summary()["job"])
    # WHEN a healthy one is written into it
    done = place.run(f"printf 'comm dp 0 0\\nop 0 5\\n' | {RANK} 0 1")
    # THEN it says so at its start, `why` says of the healthy one, and nothing is lost
    said = f"whichrank: {place.output} already holds 1 older incident of job {first}; that is kept, "
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") == 2
    why = whichrank(place, "why", str(place.output))
    assert why.returncode == 0
    assert f"1 older incident of job {first}" in why.stderr
    assert whichrank(place, "why", f"{place.output}/alert-0").returncode == 3
    assert json.loads((place.output / f"job-{first}.json").read_text())["incidents"] == ["alert-0"]


@pytest.mark.parametrize("command", [["--", "true"], ["--", "no-such-command"], ["--serve", "0", "--", "true"]])
def test_folder_that_nobody_named_is_not_left_empty(place: Place, command: list[str]) -> None:
    subprocess.run(
        [sys.executable, str(PROGRAM), *command],
        cwd=place.path,
        env=place.environ,
        capture_output=True,
        check=False,
    )
    assert not (place.path / "whichrank-out").exists()


def test_address_in_use_starts_no_job_and_says_so(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = place.run("echo job", "--serve", f"127.0.0.1:{taken.getsockname()[1]}")
    assert (done.returncode, done.stdout) == (2, "")
    assert "the analyzer cannot listen: Address already in use, so the job is not started" in done.stderr
    assert not place.output.exists()
    assert list(place.shm.iterdir()) == []


def test_quiet_says_alerts_only(place: Place) -> None:
    assert place.run("exit 0", "--quiet").stderr == ""
    stderr = place.run(f"{DIES} 0 1", "--quiet").stderr
    assert stderr.startswith("whichrank: ALERT")
    assert "watched" not in stderr


def test_killed_agent_is_restarted_and_loses_nothing(place: Place) -> None:
    # GIVEN a job with a rank
    job = place.start(f"{LAUNCHER} - {RANK} 0 1")

    def watching() -> set[int]:
        return {agent for agent, _ in watches()} & set(place.agents())

    eventually(lambda: bool(watching()))
    (first,) = watching()
    # WHEN its agent is killed, and the rank ends while another one watches
    os.kill(first, signal.SIGKILL)
    eventually(lambda: bool(watching() - {first}))
    _, stderr = job.communicate("exit 9\n", timeout=30)
    # THEN it is said, and what happened afterwards was seen
    assert stderr.count("whichrank: the agent ended by signal 9 and is started again\n") == 1
    assert [incident["id"] for incident in place.incidents()] == ["alert-0"], stderr
    assert "ended with status 2304" in stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT])
def test_signal_to_us_reaches_the_job(place: Place, number: signal.Signals) -> None:
    name = number.name.removeprefix("SIG")
    job = place.start(f"trap 'echo got it; exit 4' {name}; echo ready; while :; do sleep 0.05; done")
    assert job.stdout is not None
    assert job.stdout.readline() == "ready\n"
    job.send_signal(number)
    assert job.communicate(timeout=30)[0] == "got it\n"
    assert job.returncode == 4


def test_job_and_restarted_agent_block_no_signal(place: Place) -> None:
    # GIVEN that a run itself blocks what its thread waits for
    job = place.start("grep SigBlk /proc/self/status; read line")
    assert job.stdout is not None
    assert int(job.stdout.readline().split()[1], 16) == 0
    eventually(lambda: len(place.agents()) == 1)
    (first,) = place.agents()
    os.kill(first, signal.SIGKILL)
    # THEN the agent that it starts again has let them in once it works
    eventually(lambda: place.agents() not in ([], [first]))
    (second,) = place.agents()
    eventually(lambda: "SigBlk:\t0000000000000000" in Path(f"/proc/{second}/status").read_text())
    job.communicate("end\n", timeout=30)


def test_signal_that_kills_the_job_ends_us_the_same_way(place: Place) -> None:
    job = place.start("echo ready; exec sleep 1000")
    assert job.stdout is not None
    job.stdout.readline()
    job.terminate()
    job.communicate(timeout=30)
    assert job.returncode == -signal.SIGTERM


def test_ignored_hangup_stays_ignored_in_the_job(place: Place) -> None:
    done = subprocess.run(
        ["nohup", *place.command(shell="kill -HUP $$; echo alive")],
        env=place.environ,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "alive\n"


TAKES_IT_UP = """
import signal, sys, time
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP):
    print(signal.getsignal(number) is signal.SIG_IGN, end=" ")
def on_signal(number, _):
    print("got", number, flush=True)
    sys.exit(4)
if len(sys.argv) > 1:
    signal.signal(int(sys.argv[1]), on_signal)
print("ready", flush=True)
for _ in range(200):
    time.sleep(0.05)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
def test_signal_that_a_script_ignores_for_us_still_reaches_the_job(place: Place, number: signal.Signals) -> None:
    # GIVEN a run that a shell has started in the background, and a job that takes the signal up
    command = [*place.command(), "--", sys.executable, "-c", TAKES_IT_UP, str(int(number))]
    script = f'"$@" & p=$!; read line; kill -{int(number)} $p; wait $p; echo code $?'
    shell = subprocess.Popen(
        ["sh", "-c", script, "sh", *command],
        env=place.environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert shell.stdout is not None
    # THEN the job is started as the shell would start it: these two ignored, the others not
    assert shell.stdout.readline() == "True True False False ready\n"
    # WHEN the run is sent the signal THEN the job gets it
    assert shell.communicate("go\n", timeout=30)[0] == f"got {int(number)}\ncode 4\n"


def test_hangup_that_is_ignored_is_not_passed_on(place: Place) -> None:
    # GIVEN a run under nohup, and a job that would end by a hangup
    command = ["nohup", *place.command(), "--", sys.executable, "-c", TAKES_IT_UP, str(int(signal.SIGHUP))]
    run = subprocess.Popen(command, env=place.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert run.stdout is not None
    assert run.stdout.readline() == "False False False True ready\n"
    # WHEN the run is hung up THEN both live
    run.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        run.wait(1.0)
    run.terminate()
    run.communicate(timeout=30)
    assert run.returncode == -signal.SIGTERM


def test_job_that_was_stopped_alone_is_continued_with_us(place: Place) -> None:
    job = place.start("echo $$; kill -STOP $$; echo on")
    assert job.stdout is not None
    pid = int(job.stdout.readline())
    eventually(lambda: b"\nState:\tT" in Path(f"/proc/{pid}/status").read_bytes())
    job.send_signal(signal.SIGCONT)
    assert job.communicate(timeout=30)[0] == "on\n"
    assert job.returncode == 0


def test_no_place_for_rings(place: Place) -> None:
    place.shm.write_text("a file stands in the way")
    done = place.run("echo job; exit 6")
    assert (done.stdout, done.returncode) == ("job\n", 6)
    assert done.stderr.count("\n") == 1
    assert "the job runs unobserved" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to mount")
@pytest.mark.parametrize("option", ["ro", "size=4k"])
def test_shared_memory_is_full_or_read_only(place: Place, option: str) -> None:
    # GIVEN a base folder that cannot be written, or has no room for a folder's files
    place.shm.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", option, "tmpfs", str(place.shm)], check=True)
    try:
        if option != "ro":
            (place.shm / "full").write_bytes(bytes(4096))
        done = place.run("echo job; exit 6")
    finally:
        subprocess.run(["umount", str(place.shm)], check=True)
    assert (done.stdout, done.returncode) == ("job\n", 6)
    assert done.stderr.count("\n") == 1
    assert "the job runs unobserved" in done.stderr


def dead_job(place: Place) -> Path:
    """A folder whose owner has gone."""
    with subprocess.Popen(["sleep", "1000"]) as owner:
        folder = JobFolder.create("dead", owner_pid=owner.pid, base=place.shm)
        owner.kill()
    return folder.path


def whichrank(place: Place, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "whichrank", *arguments],
        env=place.environ, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_dead_job_that_cannot_be_removed_hinders_nobody(place: Place) -> None:
    # GIVEN the folder of a dead job with a directory where a ring would be
    left = dead_job(place)
    (left / "1.ring").mkdir()
    # THEN a run is observed all the same, `env` works, and what is not ours still lies there
    done = place.run("exit 6")
    assert done.returncode == 6
    assert "no rank was seen" in done.stderr
    assert "fault of whichrank" not in done.stderr
    assert whichrank(place, "env", "--job", "job").returncode == 0
    assert (left / "1.ring").is_dir()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to mount")
def test_read_only_shared_memory_with_a_dead_job(place: Place) -> None:
    # GIVEN a dead job on a mount that has become read-only
    place.shm.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(place.shm)], check=True)
    try:
        left = dead_job(place)
        (left / "999999999.ring").touch()
        subprocess.run(["mount", "-o", "remount,ro", str(place.shm)], check=True)
        run, env = place.run("echo job; exit 6"), whichrank(place, "env", "--job", "job")
        agent = whichrank(place, "agent", "--job", "job", "--connect", "127.0.0.1:1", "--insecure")
    finally:
        subprocess.run(["umount", str(place.shm)], check=True)
    # THEN each says in one sentence what is wrong and how to mend it
    assert (run.stdout, run.returncode, run.stderr.count("\n")) == ("job\n", 6, 1)
    assert (env.returncode, agent.returncode) == (1, 1)
    for done in (run, env, agent):
        assert "Read-only file system" in done.stderr
        assert "WHICHRANK_SHM=DIR" in done.stderr
        assert "Traceback" not in done.stderr
        assert "fault of whichrank" not in done.stderr


def test_files_of_a_run_are_for_nobody_else(place: Place) -> None:
    with tempfile.TemporaryDirectory(prefix="wr-") as short:  # the path of a socket may have 107 bytes
        listening = "until [ -S $WHICHRANK_DIR/analyzer.sock ]; do sleep 0.05; done"
        done = place.run(f"{listening}; stat -c '%n %a' $WHICHRANK_DIR/*", WHICHRANK_SHM=short)
    modes = {Path(line.split()[0]).name: line.split()[1] for line in done.stdout.splitlines()}
    assert modes == {"owner": "600", "analyzer.sock": "600"}


def test_output_that_cannot_be_written(place: Place) -> None:
    place.output.write_text("a file stands in the way")
    done = place.run(f"{DIES} 0 1; exit 6")
    assert done.returncode == 6
    assert "only said, not written" in done.stderr
    assert "ALERT failure: rank 0" in done.stderr


@pytest.mark.parametrize("when", ["start", "feed"])
def test_fault_of_the_analyzer_is_one_sentence(place: Place, when: str) -> None:
    rank = f"{DIES} 0 1; sleep 1" if when == "feed" else "sleep 1"  # no agent comes to one that does not start
    done = place.run(f"{rank}; echo job; exit 6", TEST_ANALYZER_FAILS=when)
    assert (done.stdout.splitlines()[-1], done.returncode) == ("job", 6)
    assert done.stderr.count("a fault of whichrank, the job goes on: RuntimeError") == 1
    assert done.stderr.count("too many faults of whichrank, the job goes on unobserved\n") == (when == "feed")
    assert done.stderr.count("\n") == (2 if when == "feed" else 1)
    assert place.summary()["exit_status"] == 6
    assert "RuntimeError" in (place.output / "whichrank.log").read_text()


def test_nothing_is_started_for_a_job_that_ends_at_once_without_a_ring(place: Place) -> None:
    # GIVEN an analyzer that cannot start WHEN the job has ended before it is made THEN it is not missed
    done = place.run("exit 6", TEST_ANALYZER_FAILS="start")
    assert (done.returncode, done.stderr.count("\n")) == (6, 1)
    assert "no rank was seen" in done.stderr


def test_everything_off(place: Place) -> None:
    done = place.run("env | grep -c WHICHRANK_DIR; exit 6", WHICHRANK_DISABLE="1")
    assert (done.stdout, done.returncode) == ("0\n", 6)
    assert "runs unobserved" in done.stderr
    assert not place.shm.exists()


def test_dead_jobs_are_cleaned_and_living_ones_are_not(place: Place) -> None:
    # GIVEN a run that was killed, and one that goes on
    killed = place.start("echo $$; exec sleep 1000")
    assert killed.stdout is not None
    orphan = int(killed.stdout.readline())
    eventually(lambda: len(place.agents()) == 1)
    killed.kill()
    os.kill(orphan, signal.SIGKILL)
    killed.communicate()
    living = place.start("echo $WHICHRANK_JOB; read line")
    assert living.stdout is not None
    name = living.stdout.readline().strip()
    # WHEN another one starts
    place.run("true")
    assert [folder.name for folder in place.shm.iterdir()] == [name]
    living.communicate("end\n", timeout=30)
    assert list(place.shm.iterdir()) == []


def test_wrong_options_are_usage_errors(place: Place) -> None:
    for options in (
        ["--serve", "nonsense:x"],
        ["--hang-timeout", "-1"],
        ["--serve", "1", "--join", "h:1"],
        ["--hang-timout", "3"],
    ):
        done = place.run("echo job", *options)
        assert (done.returncode, done.stdout) == (2, ""), options
        assert "Traceback" not in done.stderr


def test_two_machines(place: Place, tmp_path: Path) -> None:
    # GIVEN one run that serves, and one that joins it from another place
    other = Place(tmp_path / "other")
    other.path.mkdir()
    serving = place.start(f"echo exit 0 | {RANK} 0 2; read line", "--serve", "127.0.0.1:0")
    assert serving.stderr is not None
    assert f"start the others with --join @{place.output / 'join'}" in serving.stderr.readline()
    # WHEN the rank there dies
    done = other.run(f"{DIES} 1 2; exit 3", "--join", f"@{place.output / 'join'}")
    assert done.returncode == 3, done.stderr
    # THEN the one that serves says it
    eventually(lambda: [incident["id"] for incident in place.incidents()] == ["alert-1"])
    _, stderr = serving.communicate("end\n", timeout=30)
    assert "ALERT failure: rank 1" in stderr
    assert place.summary()["ranks"] == [0, 1]
    assert not (other.output / "incidents.jsonl").exists()


def test_short_job_is_seen_and_its_end_waited_for(place: Place) -> None:
    # GIVEN a rank that is gone before the agent has started
    start_s = time.monotonic()
    done = place.run(f"printf 'comm dp 0 0\\nop 0 5\\n' | {RANK} 0 1")
    assert "watched 1 rank; no alert" in done.stderr
    assert time.monotonic() - start_s < 10.0


def test_nobody_listens_where_it_joins(place: Place) -> None:
    done = place.run("sleep 7; exit 6", "--join", "nohost.invalid", "--insecure")
    assert done.returncode == 6
    assert done.stderr == "whichrank: no analyzer answers at tcp://nohost.invalid:29480; still trying\n"


def test_a_tape_that_cannot_be_written_leaves_the_run_as_it_was(place: Place) -> None:
    place.output.mkdir()
    (place.output / "telemetry.tape").mkdir()
    done = place.run(f"{DIES} 0 1; exit 6", "--record")
    assert done.returncode == 6
    assert "this run is not recorded: " in done.stderr
    assert "ALERT failure: rank 0" in done.stderr
