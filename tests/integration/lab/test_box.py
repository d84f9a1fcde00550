"""Labs come up with the kernel's own routing, and nothing of them is left whoever ends them."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from rank_process import eventually

from whichrank.errors import UsageError
from whichrank.testbed.demo.scene import Flow
from whichrank.testbed.lab import box, userspace
from whichrank.testbed.lab.box import Lab
from whichrank.testbed.lab.namespaces import PREFIX, namespaces
from whichrank.testbed.lab.network import Network, NoLabError, can_be_here, checked_rate
from whichrank.testbed.lab.topology import LEAF, NODE, SPINE, Cable, Place, Topology

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(not can_be_here(), reason="network namespaces need root, ip and tc"),
]

SERVER = """
import socket, sys
server = socket.create_server(("0.0.0.0", 5000))
print("ready", flush=True)
while True:
    peer, _ = server.accept()
    with peer:
        while peer.recv(1 << 16):
            pass
"""
CLIENT = """
import socket, sys
for number in range(int(sys.argv[2])):
    own = ("", int(sys.argv[4]) + number if len(sys.argv) > 4 else 0)
    with socket.create_connection((sys.argv[1], 5000), timeout=10, source_address=own) as peer:
        peer.sendall(bytes(int(sys.argv[3])))
        peer.shutdown(socket.SHUT_WR)
        peer.recv(1)
"""


def node(number: int) -> Place:
    return Place(NODE, number)


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab.make(Topology(nodes=4, leaves=2, spines=2), "200mbit")
    yield made
    made.close()


@contextlib.contextmanager
def begun(program: str, word: str, *place: str) -> Iterator[subprocess.Popen[str]]:
    """A Python program that has said this word; it is killed at the end."""
    with subprocess.Popen([*place, sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == f"{word}\n"
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def serving(lab: Lab, place: Place) -> Iterator[None]:
    with begun(SERVER, "ready", *lab.network.command_at(place)):
        yield


def send(lab: Lab, source: Place, target: Place, connections: int = 1, size: int = 1000, *ports: int) -> bool:
    command = [*lab.network.command_at(source), sys.executable, "-c", CLIENT]
    said = [target.address, *map(str, (connections, size, *ports))]
    done = subprocess.run([*command, *said], check=False, capture_output=True)
    return done.returncode == 0


def sent_bytes(lab: Lab, place: Place, device: str) -> int:
    command = [*lab.network.command_at(place), "ip", "-s", "-j", "link", "show", device]
    done = subprocess.run(command, check=True, capture_output=True)
    return int(json.loads(done.stdout)[0]["stats64"]["tx"]["bytes"])


def test_flows_spread_over_the_spines_and_each_keeps_its_path(lab: Lab) -> None:
    with serving(lab, node(3)):
        # WHEN many connections go from a leaf to the other
        assert send(lab, node(0), node(3), connections=40, size=20_000)
        # THEN both spines have carried some
        carried = [sent_bytes(lab, Place(SPINE, number), "leaf1") for number in range(2)]
        assert min(carried) > 100_000, carried
        # AND one more goes over one of them
        assert send(lab, node(0), node(3), size=500_000)
        more = [sent_bytes(lab, Place(SPINE, n), "leaf1") - before for n, before in enumerate(carried)]
        assert max(more) > 490_000, more
        assert min(more) < 10_000, more


@pytest.mark.skipif(not Path("/proc/sys/net/ipv4/fib_multipath_hash_fields").exists(), reason="needs Linux 5.12")
def test_which_path_a_flow_goes_is_known_from_its_ports(lab: Lab) -> None:
    ups = [Cable(Place(LEAF, 0), Place(SPINE, spine)) for spine in (0, 1)]
    seen = set()
    with serving(lab, node(3)):
        for port in range(7000, 7016):
            spine = lab.network.spine_of(Flow(0, 1, (port, 5000)), 0, 3)
            assert spine is not None
            before = [sent_bytes(lab, up.lower, up.device(up.lower)) for up in ups]
            assert send(lab, node(0), node(3), 1, 100_000, port)
            grown = [sent_bytes(lab, up.lower, up.device(up.lower)) - was for up, was in zip(ups, before, strict=True)]
            assert grown[spine] > 100_000 > grown[1 - spine]
            seen.add(spine)
    assert seen == {0, 1}


def test_a_cable_that_is_out_is_gone_round_where_there_is_a_path(lab: Lab) -> None:
    with serving(lab, node(3)):
        cable = Cable(Place(LEAF, 0), Place(SPINE, 0))
        lab.network.cut(cable)
        assert send(lab, node(0), node(3), connections=20)
        assert sent_bytes(lab, Place(SPINE, 0), "leaf1") < 5_000
        # WHEN the other one is out too THEN nothing comes through, until one is back
        lab.network.cut(Cable(Place(LEAF, 0), Place(SPINE, 1)))
        assert not send(lab, node(0), node(3))
        lab.network.mend(cable)
        assert send(lab, node(0), node(3))


def test_nothing_is_left_of_a_lab_whose_command_is_killed(tmp_path: Path) -> None:
    # GIVEN a command that has made a lab, and runs something in it and in a control group
    program = (
        "import subprocess, sys, time\n"
        "from whichrank.testbed.lab.box import Lab\n"
        "from whichrank.testbed.lab.topology import Topology\n"
        "lab = Lab.make(Topology(), '100mbit', 'killed')\n"
        "subprocess.Popen([*lab.network.command(0), 'sleep', '600'])\n"
        "print('up', flush=True)\n"
        "time.sleep(600)\n"
    )
    with begun(program, "up") as owner:
        group = _cgroup("killed")
        eventually(lambda: box.occupants(box.find("killed").file) == 1)
        # WHEN it is killed THEN its janitor removes all of it
        owner.send_signal(signal.SIGKILL)
    eventually(lambda: not any(name.startswith(f"{PREFIX}killed-") for name in namespaces()))
    eventually(lambda: all(lab.name != "killed" for lab in box.labs()))
    eventually(lambda: group is None or not group.exists())


def test_nothing_is_left_of_a_lab_that_is_to_stay_if_its_maker_is_killed_on_the_way() -> None:
    # GIVEN a command that is making a lab, and has made half of it
    program = (
        "import time\n"
        "from whichrank.testbed.lab.box import Lab\n"
        "from whichrank.testbed.lab.network import Network\n"
        "from whichrank.testbed.lab.topology import Topology\n"
        "def never(network):\n"
        "    print('half', flush=True)\n"
        "    time.sleep(600)\n"
        "Network._route = never\n"
        "Lab.make(Topology(), '100mbit', 'half', stays=True)\n"
    )
    with begun(program, "half") as owner:
        # THEN no other takes its name
        with pytest.raises(UsageError, match="there is a lab 'half' already"):
            Lab.make(Topology(), "100mbit", "half")
        owner.send_signal(signal.SIGKILL)
    eventually(lambda: not any(name.startswith(f"{PREFIX}half-") for name in namespaces()))
    eventually(lambda: not box.exists("half"))


def test_who_removes_a_lab_from_inside_goes_on(lab: Lab) -> None:
    program = (
        "import subprocess\n"
        "from whichrank.testbed.lab import box\n"
        "subprocess.Popen(['sleep', '600'])\n"
        f"print(box.remove('{lab.file.name}'))\n"
    )
    command = [*lab.network.command(0), sys.executable, "-c", program]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
    assert not any(name.startswith(f"{PREFIX}{lab.file.name}-") for name in namespaces())


def test_runs_put_back_what_others_have_left_and_nothing_of_the_users(lab: Lab) -> None:
    # GIVEN what a run did that could not undo it, and a table of the user's
    place = Place(LEAF, 0)
    at_leaf = lab.network.command_at(place)
    mine = [*at_leaf, "nft", "add", "table", "ip", "mine"]
    if not shutil.which("nft"):
        pytest.skip("needs nft")
    subprocess.run(mine, check=True)
    broken = Network(lab.file.name, lab.file.topology, lab.file.rate)
    broken.drop(0, 3)
    broken.unplug(1)
    with serving(lab, node(3)):
        assert not send(lab, node(0), node(3))
        assert not send(lab, node(1), node(3))
        lab.network.restore()
        assert send(lab, node(0), node(3))
        assert send(lab, node(1), node(3))
    tables = subprocess.run([*at_leaf, "nft", "list", "tables"], check=True, capture_output=True, text=True)
    assert tables.stdout.split() == ["table", "ip", "mine"]
    # AND what has gone by itself is no failure
    lab.close()
    broken.undo()


def test_a_limit_that_comes_while_packets_wait_lets_them_through() -> None:
    # GIVEN fast cables, over which one node sends as much as they carry
    lab = Lab.make(Topology(nodes=4, leaves=2, spines=2), "1gbit")
    much = [sys.executable, "-c", CLIENT, node(3).address, "1", "1000000000"]
    try:
        with (
            serving(lab, node(3)),
            subprocess.Popen([*lab.network.command(0), *much], stderr=subprocess.PIPE) as sender,
        ):
            eventually(lambda: sent_bytes(lab, node(0), "eth0") > 1_000_000)
            # WHEN they become slower THEN what is sent later comes through
            lab.network.limit(0, "100mbit")
            sender.kill()
            assert send(lab, node(0), node(3))
            # AND so it does when somebody has made one slow by hand, in larger pieces, and a run puts it back
            by_hand = ["dev", "eth0", "root", "tbf", "rate", "1mbit", "burst", "64kb", "latency", "500ms"]
            subprocess.run(["tc", "-n", lab.network.namespace(node(0)), "qdisc", "replace", *by_hand], check=True)
            before = sent_bytes(lab, node(0), "eth0")
            with subprocess.Popen([*lab.network.command(0), *much], stderr=subprocess.PIPE) as sender:
                eventually(lambda: sent_bytes(lab, node(0), "eth0") > before + 100_000)
                lab.network.restore()
                sender.kill()
            assert send(lab, node(0), node(3))
    finally:
        lab.close()


def test_what_is_left_without_a_file_is_found_by_name() -> None:
    # GIVEN a lab of which the file is lost
    lab = Lab.make(Topology(nodes=1, leaves=1, spines=1), "100mbit", "lost", stays=True)
    (box.FOLDER / "lost.json").unlink()
    assert box.labs() == [] or all(file.name != "lost" for file in box.labs())
    # THEN no other takes its name, and it can be removed
    with pytest.raises(UsageError, match="there is a lab 'lost' already"):
        Lab.make(Topology(), "100mbit", "lost")
    assert box.remove("lost")
    assert not any(name.startswith(lab.network.namespace(node(0))) for name in namespaces())
    assert not box.remove("lost")


def test_no_lab_is_removed_if_there_is_none_of_one_of_the_names(lab: Lab) -> None:
    name = lab.file.name
    command = [sys.executable, "-m", "whichrank", "lab", "down", name]
    # WHEN one of the names is wrong THEN nothing is removed
    refused = subprocess.run([*command, "nope"], capture_output=True, text=True, check=False)
    assert (refused.returncode, "there is no lab 'nope'" in refused.stderr) == (2, True)
    assert name in [file.name for file in box.labs()]
    # and a name may come twice
    removed = subprocess.run([*command, name], capture_output=True, text=True, check=False)
    assert (removed.returncode, removed.stderr) == (0, f"removed: {name}\n")
    assert name not in [file.name for file in box.labs()]


def test_a_lab_can_be_in_a_user_namespace() -> None:
    # GIVEN a command that is root of a user namespace only
    program = (
        "from whichrank.testbed.lab.box import Lab\n"
        "from whichrank.testbed.lab.topology import Topology\n"
        "lab = Lab.make(Topology(), '100mbit', 'inside')\n"
        "import subprocess\n"
        "asked = [*lab.network.command(0), 'ip', 'route', 'get', '10.77.0.4']\n"
        "print(subprocess.run(asked, capture_output=True).returncode)\n"
        "lab.close()\n"
    )
    inside = [*userspace._UNSHARE, "sh", "-c", userspace._MOUNTS, "sh", sys.executable, "-c", program]
    done = subprocess.run(inside, check=False, capture_output=True, text=True)
    if "unshare failed" in done.stderr:
        pytest.skip("this kernel gives no user namespaces")
    # THEN its lab is there, and nobody outside sees it
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
    assert not any("inside" in name for name in namespaces())


def test_its_folder_is_for_its_user_only(lab: Lab) -> None:
    assert box.FOLDER.stat().st_mode & 0o777 == 0o700
    assert (box.FOLDER / f"{lab.file.name}.json").stat().st_mode & 0o777 == 0o600


def test_where_nothing_can_be_written_down_one_sentence_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(box, "FOLDER", tmp_path / "file" / "labs")
    with pytest.raises(NoLabError, match="no lab can be written down") as caught:
        Lab.make(Topology(), "100mbit")
    assert caught.value.mend == "run it as root"


def test_a_janitor_leaves_another_lab_of_the_same_name_alone(lab: Lab) -> None:
    # GIVEN the file of a lab that has been removed WHEN there is another one of its name
    before = msgspec.structs.replace(lab.file, owner_pid=lab.file.owner_pid + 1)
    assert (box.is_still(before), box.is_still(lab.file)) == (False, True)


@pytest.mark.parametrize("rate", ["0mbit", "fast", "2000gbit", "9999999999kbit", "100mbit; rm"])
def test_a_rate_that_no_cable_has_is_refused(rate: str) -> None:
    with pytest.raises(UsageError, match="a cable cannot have the rate"):
        checked_rate(rate)


@pytest.mark.parametrize(("rate", "said"), [("1kbit", "rate 1Kbit"), ("1000gbit", "rate 1Tbit")])
def test_every_rate_can_be_cut_to_a_share(rate: str, said: str) -> None:
    lab = Lab.make(Topology(nodes=1, leaves=1, spines=1), rate)
    try:
        lab.network.limit_now_and_then(0, 0.25, 0.01).close()
        at_node = subprocess.run(
            ["tc", "-n", lab.network.namespace(node(0)), "qdisc", "show"], check=True, capture_output=True, text=True
        ).stdout
        assert said in at_node
    finally:
        lab.close()


def _cgroup(lab: str) -> Path | None:
    """One that the lab could have made, where this machine has any that can be written."""
    for parent in (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")):
        with contextlib.suppress(OSError):
            path = parent / f"{PREFIX}{lab}-test"
            path.mkdir()
            return path
    return None
