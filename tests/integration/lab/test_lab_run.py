"""`whichrank lab run`: a job over nodes, broken, named; nothing is left behind, also after Ctrl-C."""

from __future__ import annotations

import errno
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rank_process import eventually

from whichrank.surface.cli import main
from whichrank.testbed.lab import box
from whichrank.testbed.lab.namespaces import PREFIX, namespaces
from whichrank.testbed.lab.network import can_be_here

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(not can_be_here(), reason="network namespaces need root, ip and tc"),
]

LAB = [sys.executable, "-m", "whichrank", "lab"]
LONG_S = 60.0
"""In which a lab is made, whatever runs beside it."""


def lab_of(run: subprocess.Popen[bytes]) -> str:
    """The name of the lab that this command has made: others of this machine may be up too."""
    names: list[str] = []

    def found() -> bool:
        names[:] = [lab.name for lab in box.labs() if lab.owner_pid == run.pid]
        return bool(names)

    eventually(found, LONG_S)
    return names[0]


def places_of(lab: str) -> list[str]:
    return [name for name in namespaces() if name.startswith(f"{PREFIX}{lab}-")]


def test_a_stopped_rank_of_a_job_over_four_nodes_is_named(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    # GIVEN a mixture of experts over four nodes WHEN one of its ranks is stopped
    command = [*LAB, "run", "--scenario", "stop", "--workload", "moe", "--seed", "2", "--keep", str(kept), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        lab = lab_of(run)
        out, err = run.communicate()
    # THEN it is named, and the lab is gone
    assert run.returncode == 0, out + err
    result = json.loads(out)
    assert [c["rank"] for c in result["incidents"][-1]["culprits"]] == result["truth"]["culprits"]
    assert places_of(lab) == []
    # AND its recording says the same again
    replay = [sys.executable, "-m", "whichrank", "replay", str(kept)]
    again = subprocess.run(replay, check=False, capture_output=True, text=True)
    assert (again.returncode, again.stderr) == (3, "whichrank: as it was said live\n")


def test_ctrl_c_leaves_nothing() -> None:
    with subprocess.Popen([*LAB, "run", "--scenario", "none", "--workload", "ddp"], stderr=subprocess.PIPE) as run:
        lab = lab_of(run)
        eventually(lambda: len(places_of(lab)) == 8)
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=60)
    assert run.returncode == 130
    eventually(lambda: places_of(lab) == [])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--scenario", "stpo"], "there is no scenario 'stpo'\n  mend:  did you mean 'stop'? whichrank lab list"),
        (["--scenario", "async-posted-irecv"], "there is no scenario 'async-posted-irecv'"),
        (["--scenario", "absorbed", "--workload", "ddp"], "nothing would come of the scenario 'absorbed'"),
        (["--scenario", "unplugged", "--nodes", "2"], "needs 4 nodes, and there are 2\n  mend:  --nodes 4"),
        (
            ["--nodes", "40"],
            "40 nodes have equally many ranks each, and 8 cannot be shared out so\n  mend:  --ranks 40",
        ),
        (["--workload", "gpt"], "there is no workload 'gpt'"),
        (["--ranks", "6"], "4 nodes have equally many ranks each, and 6 cannot be shared out so"),
        (["--rate", "fast"], "a cable cannot have the rate 'fast'"),
        (["--leaves", "1", "--ports", "2"], "with one leaf a node has one port, not 2"),
        (["--scenario", "slow-link 51mbit"], "there is no scenario 'slow-link 51mbit'\n  mend:  did you mean"),
        (["--scenario", "slow-link 50mbit", "--rate", "50mbit"], "limits a cable to 50mbit, and all cables have"),
        (["--scenario", "slow-link", "--rate", "1mbit"], "limits a cable to 50mbit, and all cables have 1mbit"),
        (["--scenario", "dead-spine", "--leaves", "1"], "needs 2 leaves, and there is 1\n  mend:  --leaves 2"),
        (["--lab", ""], "a lab cannot be called ''"),
        (
            ["--lab", "a/b"],
            "a lab cannot be called 'a/b': up to twelve small letters and digits\n  mend:  whichrank lab",
        ),
    ],
)
def test_what_cannot_run_is_said_before_anything_is_made(
    options: list[str], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["lab", "run", *options]) == 2
    refused = capfd.readouterr().err
    assert said in refused
    assert "mend:" in refused


@pytest.mark.parametrize(
    ("arguments", "mend"),
    [
        (["up", "--name", ""], "--name lab1"),
        (["up", "--name", "a/b"], "--name lab1"),
        (["down", "a/b"], "whichrank lab status"),
        (["down", "--all", "mine"], "leave --all out"),
    ],
)
def test_names_that_are_none_are_refused(arguments: list[str], mend: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", *arguments]) == 2
    assert f"\n  mend:  {mend}" in capfd.readouterr().err


def test_two_jobs_in_one_lab_are_told_apart_and_its_network_is_as_before() -> None:
    # GIVEN a lab that stays
    name = subprocess.run([*LAB, "up"], check=True, capture_output=True, text=True).stdout.strip()
    try:
        rates = [rates_of(place) for place in places_of(name)]
        # WHEN two jobs run in it at once, one of which has a rank stopped
        command = [*LAB, "run", "--lab", name, "--json", "--ranks", "4", "--workload", "ddp", "--scenario"]
        with (
            subprocess.Popen([*command, "stop"], stdout=subprocess.PIPE) as stopped,
            subprocess.Popen([*command, "none"], stdout=subprocess.PIPE) as healthy,
        ):
            reported = [json.loads(run.communicate()[0]) for run in (stopped, healthy)]
        # THEN the rank is named in its own job only
        culprits = [
            [c["rank"] for i in one["incidents"] if i["kind"] == "hang" for c in i["culprits"]] for one in reported
        ]
        assert culprits == [reported[0]["truth"]["culprits"], []]
        # AND what another run does to the network is undone
        cut = subprocess.run([*command, "unplugged"], check=False, capture_output=True)
        assert cut.returncode in (0, 1), cut.stderr
        assert [rates_of(place) for place in places_of(name)] == rates
        probe = "import socket; print(socket.socket().connect_ex(('10.77.0.4', 1)))"
        enter = ["nsenter", f"--net=/run/netns/{PREFIX}{name}-node-0", sys.executable, "-c", probe]

        def is_reached() -> bool:  # not at once: the kernel sees a carrier when it comes to it, on a busy machine
            said = subprocess.run(enter, check=True, capture_output=True, text=True).stdout
            return said == f"{errno.ECONNREFUSED}\n"

        eventually(is_reached, LONG_S)
    finally:
        subprocess.run([*LAB, "down", name], check=True, capture_output=True)


def rates_of(place: str) -> list[str]:
    said = subprocess.run(["tc", "-n", place, "qdisc", "show"], check=True, capture_output=True, text=True).stdout
    return sorted(re.sub(r"(qdisc tbf) \w+:", r"\1", line) for line in said.splitlines())


def test_a_lab_that_is_damaged_is_said_to_be() -> None:
    name = subprocess.run([*LAB, "up"], check=True, capture_output=True, text=True).stdout.strip()
    try:
        subprocess.run(["ip", "netns", "del", f"{PREFIX}{name}-spine-0"], check=True)
        said = subprocess.run([*LAB, "run", "--lab", name], check=False, capture_output=True, text=True)
        assert said.returncode == 2
        assert f"the lab '{name}' is damaged" in said.stderr
        assert f"mend:  whichrank lab down {name}" in said.stderr
    finally:
        subprocess.run([*LAB, "down", name], check=True, capture_output=True)


def test_a_lab_that_is_up_has_its_own_network(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "run", "--lab", "x", "--nodes", "2"]) == 2
    assert "--nodes is of a lab that is made" in capfd.readouterr().err
    assert main(["lab", "run", "--lab", "nowhere"]) == 2
    assert "there is no lab 'nowhere'" in capfd.readouterr().err
