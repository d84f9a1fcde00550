"""The agent as a process: made ready and run, for `whichrank agent` and for `whichrank run`."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Final

from whichrank.agent.agent import Agent
from whichrank.errors import UsageError, WhichrankError
from whichrank.model.plain_text import error_lines, without_key
from whichrank.ring.end_signals import END_SIGNALS, write_end_signal
from whichrank.ring.folder import SOCKET_NAME, JobFolder, base_folder, checked_job
from whichrank.server.address import INSECURE, Endpoint, joined_endpoint
from whichrank.server.agent_arguments import AgentArguments
from whichrank.server.another_job import sent_away
from whichrank.server.environment import FOLDER
from whichrank.wire.zmq_transport import ZmqAgentEnd

_END: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def open_agent(
    job: str | None, connect: str | None, *, stay: bool, insecure: bool = False, run_pid: int | None = None
) -> tuple[Agent, JobFolder]:
    """An agent for a job on this node, and the job's folder, which is made if it is not there.

    Args:
        job: Its name.
        connect: Where the analyzer listens; see `server.address`.
        insecure: No key is asked for.
        stay: See `Agent`.
        run_pid: The run that has started this agent and answers for the folder; without one the agent itself does.

    Raises:
        UsageError: There is no job or no address to go by.
        SensorError: There is no place for rings.
    """
    endpoint = joined_endpoint("--connect", connect, os.environ, insecure=insecure) if connect else None
    if not job:
        raise UsageError("which job?", mend='--job NAME, or first: eval "$(whichrank env --join HOST:PORT)"')
    reported = Path(os.environ.get(FOLDER, ""))
    base = reported.parent if reported.name == checked_job(job) else base_folder()
    folder = JobFolder(base / job)
    if not folder.is_ours() or folder.owner() is None:
        folder = JobFolder.create(job, owner_pid=run_pid or os.getpid(), base=base)
    local = folder.path / SOCKET_NAME
    if not endpoint and not local.exists():
        raise UsageError(
            "where does the analyzer listen?",
            mend="--connect HOST:PORT, as given to --serve on the machine that analyzes",
        )
    endpoint = endpoint or Endpoint(f"ipc://{local}", "")
    is_local = endpoint.address.startswith("ipc:")
    # The name of a run is made up on each node; one that the user gave is the same on all.
    shared = "" if run_pid else job
    return Agent(folder, ZmqAgentEnd(*endpoint), stay=stay, beside_analyzer=is_local, shared_name=shared), folder


def leave(folder: JobFolder) -> None:
    """Remove a folder when nobody answers for it but the agent that ends now."""
    owner = folder.owner()
    if owner is None or owner.pid == os.getpid() or not owner.alive():
        folder.remove()


def run_agent(agent: Agent, folder: JobFolder, *, connect: str | None, run_pid: int | None) -> None:
    """Let it watch until its job is over or a signal asks it to end; then close it.

    Args:
        agent: Of `open_agent`, as the folder.
        folder: Of the job.
        connect: Where the analyzer listens, as the user wrote it.
        run_pid: See `open_agent`.

    Raises:
        AnotherJobError: The analyzer is of another job.
    """

    def stop(number: int, _: FrameType | None) -> None:
        if run_pid is None:  # nobody else says that this node is asked to end
            write_end_signal(folder.path, number)
        agent.stop()

    for number in _END:
        signal.signal(number, stop)
    # A run that starts its agent again keeps those of a terminal.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, END_SIGNALS)
    try:
        agent.run()
    finally:
        agent.close()
        leave(folder)
    if agent.another_job:
        raise sent_away(without_key(connect) if connect else "this machine", agent.another_job)


def run_for(arguments: AgentArguments) -> int:
    """The whole agent of a run; what it exits with."""
    job, connect, run_pid = arguments
    insecure = os.environ.get(INSECURE) == "1"
    try:
        agent, folder = open_agent(job, connect, stay=True, insecure=insecure, run_pid=run_pid)
        run_agent(agent, folder, connect=connect, run_pid=run_pid)
    except WhichrankError as error:
        print(error_lines(error), file=sys.stderr)
        return error.exit_code
    return 0
