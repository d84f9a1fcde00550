"""A check before a job: starts a launcher with a program of ours in place of the training script, and hears it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from whichrank.act.check import Floors
from whichrank.errors import FormatError, IncompleteDataError, UsageError
from whichrank.model.check import LINE_BEGINS, Checked
from whichrank.server.private_file import write_private

PROGRAM: Final = "whichrank.sensors.check"
MOST_BYTES: Final = 1 << 22
"""Of a file of floors."""
MOST_LINE: Final = 1 << 28
"""Bytes of what ranks have found: some kilobytes each."""
PATIENCE_S: Final = 120.0
"""Beyond the time that ranks wait for each other: processes start, and measure for some seconds."""
ENDS_S: Final = 40.0
"""In which a launcher that is told to end has ended its processes: torchrun kills them after 30 s."""
EXAMPLE: Final = "whichrank validate -- torchrun --nproc-per-node 8"


def command_of(launcher: Sequence[str], options: Sequence[str]) -> list[str]:
    """The launcher with our program in place of a training script.

    Args:
        launcher: `torchrun` with its options, and a script and its arguments, which are left out; or any other
            launcher with its options alone.
        options: Of our program.

    Raises:
        UsageError: The launcher is not understood, or has a program behind its options.
    """
    words = list(launcher)
    begins = _after_torchrun(words)
    if begins:
        return [*words[:begins], *_options_of_torchrun(words[begins:]), "-m", PROGRAM, *options]
    program = next((word for word in words if word.endswith(".py") or Path(word).name.startswith("python")), None)
    if program is not None:
        what = f"'{program}' would be run: of this launcher only the options may be given"
        raise UsageError(what, mend="whichrank validate -- srun --ntasks 8")
    return [*words, sys.executable, "-m", PROGRAM, *options]


def _after_torchrun(words: list[str]) -> int:
    """How many words name torchrun; 0: it is another launcher."""
    if Path(words[0]).name == "torchrun":
        return 1
    is_module = words[1:3] == ["-m", "torch.distributed.run"] and Path(words[0]).name.startswith("python")
    return 3 if is_module else 0


def _options_of_torchrun(words: list[str]) -> list[str]:
    """What stands before the training script, without what says how that is started."""
    from torch.distributed.run import get_args_parser

    parser = get_args_parser()
    parser.exit_on_error = False
    end = "whichrank-program"
    try:
        with contextlib.redirect_stderr(None):
            parsed = parser.parse_args([*words, end])
    except (SystemExit, Exception) as error:
        what = f"torchrun does not understand its options: {error}" if str(error) else "torchrun refuses its options"
        raise UsageError(what, mend=EXAMPLE) from error
    behind = len(parsed.training_script_args)
    options = words[: len(words) - behind]
    return [word for word in options if word not in ("-m", "--module", "--no-python", "--no_python")]


def run_check(command: Sequence[str], limit_s: float, say: Callable[[str], None]) -> Checked:
    """Start it, pass on what else it prints, and return what ranks have found.

    Args:
        command: Of `command_of`.
        limit_s: For which ranks wait for each other.
        say: Told each line of the launcher.

    Raises:
        UsageError: The launcher does not start.
        IncompleteDataError: It has ended without a word of rank 0, or takes too long.
    """
    try:
        process = subprocess.Popen(list(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, errors="replace")
    except OSError as error:
        raise UsageError(f"the launcher does not start: {error}", mend=EXAMPLE) from error
    is_late = threading.Event()

    def end() -> None:
        is_late.set()
        process.terminate()

    timer = threading.Timer(limit_s + PATIENCE_S, end)
    timer.start()
    found: Checked | None = None
    try:
        for line in process.stdout or ():
            _, is_ours, content = line.partition(LINE_BEGINS)
            if not is_ours:
                say(line.rstrip("\n"))
            elif len(content) <= MOST_LINE:
                found = msgspec.json.decode(content, type=Checked)
                if found.late:  # it would wait for them
                    say("ranks did not come, so the launcher is ended; it may take half a minute to end them")
                    break
        code = process.wait() if not (found and found.late) else 0
    except (ValueError, msgspec.DecodeError) as error:
        raise IncompleteDataError(f"what rank 0 says cannot be read: {error}", mend="run it again") from error
    finally:
        timer.cancel()
        if process.poll() is None:  # Ctrl-C, or an error: nothing of ours stays
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(ENDS_S)
            if process.poll() is None:
                process.kill()
                process.wait()
        if process.stdout:
            process.stdout.close()
    if found is None:
        if is_late.is_set():
            why = "took too long, and was ended"
        else:
            why = f"ended with exit code {code}" if code else "is not on this machine, or said nothing"
        subject = "the launcher" if is_late.is_set() or code else "rank 0"
        raise IncompleteDataError(f"nothing was measured: {subject} {why}", mend="see its output above")
    return found


def read_floors(path: Path | None, *, may_be_new: bool = False) -> Floors:
    """The floors in a file; none without one.

    Args:
        path: Of the file.
        may_be_new: It need not be there.

    Raises:
        UsageError: It cannot be read.
        FormatError: It holds no floors.
    """
    if path is None:
        return Floors()
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        if may_be_new:
            return Floors()
        what = f"there is no file {path}"
        raise UsageError(what, mend=f"whichrank validate --learn {path} -- torchrun ...") from None
    except OSError as error:
        raise UsageError(f"the floors cannot be read: {error}", mend="--floor FILE") from error
    try:
        return msgspec.json.decode(content, type=Floors)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FormatError(f"{path.name} holds no floors: {error}", where=str(path), mend="--learn FILE") from error


def write_floors(path: Path, floors: Floors) -> None:
    """Write floors into a file, whole or not at all.

    Raises:
        UsageError: It cannot be written.
    """
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        write_private(part, msgspec.json.format(msgspec.json.encode(floors), indent=2) + b"\n")
        part.replace(path)
    except OSError as error:
        raise UsageError(f"the floors cannot be written: {error}", mend="--learn FILE") from error
