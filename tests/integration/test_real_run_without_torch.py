"""A command whose Python has no torch: nothing of whichrank comes near it, and it ends as it would have ended."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

SCRIPT = """import sys
try:
    import torch
except ModuleNotFoundError as error:
    print(error)
print(sys.argv[1:], sys.stdin.read())
sys.exit(7)
"""
SAID = "No module named 'torch'\n['a b', '--quiet'] typed\n"
NO_RANK = (
    "whichrank: no rank was seen: the command started no torch.distributed rank, or none that whichrank could watch"
    " (if it did: whichrank doctor)\n"
)
NEEDED = ("click", "rich", "markdown_it", "mdurl", "pygments", "msgspec", "zmq", "pyzmq.libs", "numpy", "numpy.libs")


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A Python in whose environment nothing is installed."""
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    return tmp_path / "bare" / "bin" / "python"


def run(place: Path, *command: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WHICHRANK_", "PYTHONPATH"))}
    return subprocess.run(
        command, cwd=place, env=kept | environ, input="typed", capture_output=True, text=True, timeout=120, check=False
    )


def whichrank_of(python: Path | str) -> list[Path | str]:
    return [python, "-m", "whichrank", "run"]


def install_whichrank(python: Path) -> None:
    """Put whichrank and what it needs, and so no torch, into this environment."""
    ours = Path(next(path for path in sys.path if path.endswith("site-packages")))
    (theirs,) = python.parents[1].glob("lib/python*/site-packages")
    for name in [*NEEDED, *(path.name for path in ours.glob("*whichrank*"))]:
        if (ours / name).exists():
            (theirs / name).symlink_to(ours / name)


@pytest.mark.parametrize("quiet", [[], ["--quiet"]], ids=["", "quiet"])
def test_command_without_torch_is_undisturbed(bare: Path, tmp_path: Path, quiet: list[str]) -> None:
    # GIVEN a script, and a Python other than whichrank's that has no torch
    (tmp_path / "script.py").write_text(SCRIPT)
    # WHEN it runs under whichrank
    done = run(tmp_path, *whichrank_of(sys.executable), *quiet, "--", bare, "script.py", "a b", "--quiet")
    # THEN arguments, streams and exit code are its own, and one sentence says that no rank was seen
    assert (done.stdout, done.returncode) == (SAID, 7)
    assert done.stderr == ("" if quiet else NO_RANK)


def test_script_that_needs_torch_fails_in_its_own_words(bare: Path, tmp_path: Path) -> None:
    # GIVEN a script that cannot do without
    script = "import torch"
    alone = run(tmp_path, bare, "-c", script)
    assert alone.returncode == 1
    # WHEN it runs under whichrank THEN it ends as it does alone
    done = run(tmp_path, *whichrank_of(sys.executable), "--", bare, "-c", script)
    assert (done.stdout, done.returncode) == ("", 1)
    assert done.stderr == alone.stderr + NO_RANK


def test_whichrank_in_an_environment_without_torch(bare: Path, tmp_path: Path) -> None:
    # GIVEN that whichrank itself is installed where no torch is
    install_whichrank(bare)
    (tmp_path / "script.py").write_text(SCRIPT)
    # WHEN a command runs under it
    done = run(tmp_path, *whichrank_of(bare), "--", bare, "script.py", "a b", "--quiet")
    # THEN the command is undisturbed all the same, and it is said what is missing and how to mend it
    assert (done.stdout, done.returncode) == (SAID, 7)
    assert "torch is not installed for this Python" in done.stderr
    assert "pip install torch" in done.stderr
    assert done.stderr.endswith(NO_RANK)
    assert "Traceback" not in done.stderr
    assert "fault of whichrank" not in done.stderr


def test_installation_of_torch_that_is_broken(tmp_path: Path) -> None:
    # GIVEN a torch that is there and cannot be imported, for whichrank and for the command
    (tmp_path / "broken" / "torch").mkdir(parents=True)
    (tmp_path / "broken" / "torch" / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\")")
    (tmp_path / "script.py").write_text(SCRIPT)
    # WHEN the command runs under whichrank
    command = [*whichrank_of(sys.executable), "--", sys.executable, "script.py", "a b", "--quiet"]
    done = run(tmp_path, *command, PYTHONPATH=str(tmp_path / "broken"))
    # THEN it is undisturbed
    assert (done.stdout, done.returncode) == (SAID, 7)
    assert done.stderr.endswith(NO_RANK)
    assert "Traceback" not in done.stderr
    assert "fault of whichrank" not in done.stderr
