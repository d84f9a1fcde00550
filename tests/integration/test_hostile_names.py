"""Names that a terminal would obey, from another node and from the job: through a real run and every command that reads
it, nothing but printable text comes out, and no command that is suggested carries them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from rank_process import eventually
from tests.integration.side_by_side import Run

HOST = "e\x1b[2Jvil\x9b31m`reboot`\u202e;id"
GROUP = "gr\x1b]0;owned\x07[red]oup[/red]\u202e"

# A host name of its own, of which the kernel takes any bytes.
EVIL = (
    "unshare", "--uts", "sh", "-c", 'printf %s "$0" >/proc/sys/kernel/hostname; exec "$@"', HOST,
)  # fmt: skip


def can_rename() -> bool:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    done = subprocess.run([*EVIL, "hostname"], capture_output=True, check=False)
    return b"vil" in done.stdout


pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not can_rename(), reason="a host name of its own needs root and unshare"),
]


def plain(text: str) -> str:
    """The text, if a terminal can do nothing but print it."""
    bad = {c for c in text if not c.isprintable() and c != "\n"}
    assert not bad, (bad, text)
    return text


def test_names_of_a_node_and_of_a_job_reach_no_terminal_as_they_are(tmp_path: Path) -> None:
    # GIVEN a job with a node and a group of hostile names
    with (
        Run(tmp_path / "ours", (0, 2), 4, 1, "--serve", "127.0.0.1:0", GROUP=GROUP) as ours,
        Run(tmp_path / "evil", (2, 2), 4, 1, "--join", ours.address(), on=EVIL, GROUP=GROUP) as evil,
    ):
        # WHEN a rank of it is stopped
        evil.stop(3)
        eventually(lambda: bool(ours.alerts()) and "ALERT" in ours.said())
        assert {culprit.rank for word in ours.alerts() for culprit in word.culprits} == {3}

        # THEN the run and all commands print plain text, with what is harmless of the names
        out = str(ours.folder / "out")
        said = {
            "run": plain(ours.said()),
            "why": plain(ours.whichrank("why", out)),
            "json": plain(ours.whichrank("why", "--json", out)),
            "watch": plain(ours.whichrank("watch", "--once")),
            "watch there": plain(evil.whichrank("watch", "--once", on=EVIL)),
            "watch json": plain(evil.whichrank("watch", "--json", on=EVIL)),
            "stacks": plain(evil.whichrank("stacks", on=EVIL)),
        }
        assert "vil" in said["run"]
        assert "[red]" in said["watch"], said["watch"]  # as text, not as a colour
        # AND the JSON still says what came, and no command carries it
        (*_, last) = json.loads(said["json"])
        assert last["culprits"][0]["host"] == HOST
        assert last["next"], last
        assert not any("reboot" in command or "id" in command.split() for command in last["next"])
        assert last["next"][0].startswith("on the node of rank 3: kill -CONT ")
