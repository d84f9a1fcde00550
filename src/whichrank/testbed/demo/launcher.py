"""Starts the ranks of a job by forking one process that has torch loaded already.

``python -m whichrank.testbed.demo.launcher --nproc 8 -- -m whichrank.testbed.demo.job --layout tp8``

torchrun imports torch once per rank, which on two cores takes most of a short test. This launcher imports it once.
In all that a sensor or an agent can see it does as torchrun does: RANK and its companions in the environment, a
session per rank, a look at the ranks every 0.1 s, SIGTERM to the others when one has failed, SIGKILL after
`--shutdown-timeout-s`, exit code 1.

Where many runs follow each other, `whichrank.testbed.demo.nursery` has imported it for all of them (`--nursery`).

A forked rank runs the hook that `import torch` would have called (entry point group ``torch.backends``), with its
environment in place.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import importlib
import json
import os
import runpy
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from whichrank.testbed.demo.ask import Owner, ask
from whichrank.testbed.demo.ports import free_port

# torch._dynamo: the first optimizer step imports it, which would cost every rank a second.
PRELOADED = ("torch", "torch._dynamo", "torch.distributed.device_mesh", "torch.distributed.fsdp")
_POLL_EVERY_S = 0.1
_HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_PR_SET_PDEATHSIG = 1
_HOOK = ("whichrank.sensors.autoload", "autoload")


def options() -> argparse.ArgumentParser:
    """Command line of the launcher."""
    parser = argparse.ArgumentParser(
        prog="whichrank.testbed.demo.launcher", description="Fork the ranks of a torch job."
    )
    parser.add_argument("--nproc", type=int, required=True, help="number of ranks on this node")
    parser.add_argument("--node", type=int, default=0, help="number of this node")
    parser.add_argument("--nodes", type=int, default=1, help="how many there are, each with as many ranks")
    parser.add_argument("--master", default="", help="HOST:PORT for the rendezvous; for one node a free port is found")
    parser.add_argument("--shutdown-timeout-s", type=float, default=30.0, help="from SIGTERM to SIGKILL")
    parser.add_argument(
        "--nursery", default="", help="socket of a `whichrank.testbed.demo.nursery` that has torch loaded"
    )
    parser.add_argument("--pids", type=Path, help="write {rank: pid} as JSON to this file")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="-- [-m MODULE | SCRIPT | MODULE] ARGS")
    return parser


@dataclass(frozen=True)
class Place:
    """Where in the job the ranks of a launcher are.

    Args:
        nproc: ranks on each node.
        node: this one.
        nodes: how many there are.
        host: of the rendezvous.
        port: of it.
    """

    nproc: int
    node: int
    nodes: int
    host: str
    port: int

    def environment(self, local_rank: int) -> dict[str, str]:
        """What torchrun gives a rank."""
        return {
            "RANK": str(self.node * self.nproc + local_rank),
            "LOCAL_RANK": str(local_rank),
            "WORLD_SIZE": str(self.nodes * self.nproc),
            "LOCAL_WORLD_SIZE": str(self.nproc),
            "GROUP_RANK": str(self.node),
            "MASTER_ADDR": self.host,
            "MASTER_PORT": str(self.port),
        }


class Launcher:
    """One run of a job, or a node's part of it.

    Args:
        place: which ranks.
        command: module or script, and its arguments.
        shutdown_timeout_s: from SIGTERM to SIGKILL.
        owner: of this run, if it is not the parent.
    """

    def __init__(self, place: Place, command: list[str], shutdown_timeout_s: float, owner: Owner | None = None) -> None:
        self._place = place
        self._command = command
        self._shutdown_timeout_s = shutdown_timeout_s
        self._owner = owner
        self._running: dict[int, int] = {}
        self._codes: dict[int, int] = {}
        self._stop_signal = 0

    def run(self, pids_file: Path | None = None) -> int:
        """Start, watch and end the ranks.

        Returns:
            0 if every rank ended with 0, else 1.
        """
        for number in _HANDLED:
            signal.signal(number, self._on_signal)
        first = self._place.node * self._place.nproc
        for local_rank in range(self._place.nproc):
            self._running[self._fork(local_rank)] = first + local_rank
        if pids_file is not None:
            partial = pids_file.with_suffix(".partial")
            partial.write_text(json.dumps({rank: pid for pid, rank in self._running.items()}))
            partial.replace(pids_file)
        while self._running and not self._stop_signal and not any(self._codes.values()):
            self._reap()
            time.sleep(_POLL_EVERY_S if self._running else 0)
            if self._owner and (wanted := self._owner.wants()):
                self._stop_signal = wanted
        failed = [(rank, code) for rank, code in self._codes.items() if code]
        if self._running:
            self._end(self._stop_signal or signal.SIGTERM)
        if failed:
            names = ", ".join(f"rank {rank} exit code {code}" for rank, code in failed)
            print(f"launcher: failed first: {names}", file=sys.stderr, flush=True)
        return 1 if failed or self._stop_signal else 0

    def _fork(self, local_rank: int) -> int:
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        # A signal that comes before the rank has handlers of its own waits for them.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
        pid = os.fork()
        if pid:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        else:
            if self._owner:
                self._owner.leave()
            become_rank(self._place.environment(local_rank), parent)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            run_program(self._command)
            sys.exit(0)
        return pid

    def _reap(self) -> None:
        while self._running:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            rank = self._running.pop(pid, None)
            if rank is not None:
                self._codes[rank] = os.waitstatus_to_exitcode(status)

    def _end(self, number: int) -> None:
        self._send(number)
        deadline_s = time.monotonic() + self._shutdown_timeout_s
        while self._running and time.monotonic() < deadline_s:
            self._reap()
            time.sleep(0.02)
        self._send(signal.SIGKILL)
        while self._running:
            self._reap()
            time.sleep(0.02)

    def _send(self, number: int) -> None:
        for pid in self._running:
            os.kill(pid, number)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._stop_signal = number


def become_rank(environment: dict[str, str], parent: int) -> None:
    """Turn a forked child into a rank: its session, its signals, its environment, its sensors."""
    die_with_parent()
    if os.getppid() != parent:
        os._exit(1)
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.update(environment)
    call_hook()


def die_with_parent() -> None:
    """From now on this process is killed when its parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def call_hook() -> None:
    """Call the sensors' entry point if there is one; the job goes on whatever it does."""
    try:
        getattr(importlib.import_module(_HOOK[0]), _HOOK[1])()
    except ModuleNotFoundError:
        return
    except Exception:
        traceback.print_exc()


def run_program(command: list[str], names: dict[str, Any] | None = None) -> None:
    """Run ``-m MODULE ARGS``, ``SCRIPT.py ARGS`` or ``MODULE ARGS`` as ``__main__``.

    What it raises is left to the interpreter, so that exit hooks, destructors and the exit code are those of an
    ordinary program.

    Args:
        command: See above.
        names: Globals that it begins with.
    """
    program, arguments = command[0], command[1:]
    if program == "-m":
        program, arguments = command[1], command[2:]
    sys.argv = [program, *arguments]
    if command[0] != "-m" and program.endswith(".py"):
        here = str(Path(program).resolve().parent)
        if sys.flags.safe_path:  # the first place is no script's then
            sys.path.insert(0, here)
        else:
            sys.path[0] = here
        runpy.run_path(program, names, run_name="__main__")
    else:
        runpy.run_module(program, names, run_name="__main__", alter_sys=True)


def load() -> None:
    """Import what ranks need."""
    for module in PRELOADED:
        importlib.import_module(module)
    gc.freeze()  # what all ranks share stays shared: no rank collects it, also not at its end


def main(argv: list[str] | None = None, owner: Owner | None = None) -> int:
    """Run a job, for an owner that is not the parent if there is one."""
    args = options().parse_args(argv)
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command or args.nproc < 1:
        options().error("nothing to run: expected -- [-m MODULE | SCRIPT] ARGS")
    host, _, port = args.master.rpartition(":") if args.master else ("127.0.0.1", ":", str(free_port()))
    if not port.isdigit() or not 0 <= args.node < args.nodes:
        options().error("--master takes HOST:PORT, and --node a number below --nodes")
    place = Place(args.nproc, args.node, args.nodes, host, int(port))
    if args.nursery and owner is None:
        return ask(args.nursery, sys.argv[1:] if argv is None else argv, _HANDLED)
    load()
    return Launcher(place, command, args.shutdown_timeout_s, owner).run(args.pids)


if __name__ == "__main__":
    sys.exit(main())
