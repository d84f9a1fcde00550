"""The sentences on two jobs that meet on one port: where the analyzer listens, and where an agent was sent away."""

from __future__ import annotations

from whichrank.errors import WhichrankError
from whichrank.model.telemetry import AnotherJob

OWN_ADDRESS = "give each job an address of its own: --serve HOST:PORT on one of its machines, --join on the others"


class AnotherJobError(WhichrankError):
    """The analyzer that an agent was told to join is of another job."""

    exit_code = 6


def said_where_it_listens(host: str, other: AnotherJob) -> str:
    """For the job that is analyzed."""
    difference = _difference(other, "that job", "this one")
    return f"{host}: an agent there watches another job ({difference}); what it sends is refused"


def sent_away(address: str, other: AnotherJob) -> AnotherJobError:
    """For the job that is refused."""
    difference = _difference(other, "this job", "that one")
    what = f"the analyzer at {address} is of another job, {other.job} ({difference}), so this machine is not watched"
    return AnotherJobError(what, mend=OWN_ADDRESS)


def _difference(other: AnotherJob, theirs: str, ours: str) -> str:
    if other.fact == "rank":
        return f"both have a rank {other.theirs} that runs"
    if other.fact == "older":
        return "its ranks had met before the analyzer's run began"
    words = {
        "name": "is called",
        "run_id": "has the --rdzv-id",
        "master_port": "has the MASTER_PORT",
        "world_size": "has the WORLD_SIZE",
    }
    return f"{theirs} {words[other.fact]} {other.theirs}, {ours} {other.ours}"
