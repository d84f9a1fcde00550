"""What a validation says, in words and as a table."""

from __future__ import annotations

from typing import Final

from whichrank.model.plain_text import one_line
from whichrank.server.validations_file import Validated

EXIT_SLOW: Final = 4
EXIT_INCOMPLETE: Final = 5


def exit_code(*, is_slow: bool, is_known: bool) -> int:
    """Of `whichrank validate`: 0 all is as quick, 4 a rank or a link is slow, 5 nothing could be said."""
    if is_slow:
        return EXIT_SLOW
    return 0 if is_known else EXIT_INCOMPLETE


def sentence_of(result: Validated) -> str:
    """In one line."""
    paused = f"training was paused for {result.paused_s:.1f} s"
    counts = f"{result.measured_ranks} ranks and {result.measured_links} links were measured"
    if result.left_out_links:
        counts += f", for {result.left_out_links} links no time was left"
    found = [
        *(f"rank {one.rank} takes {one.factor:.1f} times as long as the others for the same {_WORK[one.what]}"
          for one in result.slow_ranks),
        *(f"from rank {one.src} to rank {one.dst} {rate_of(one.bytes_per_s)} go through, on the other links"
          f" {rate_of(one.usual_bytes_per_s)}" for one in result.slow_links),
        *(f"from rank {one.src} to rank {one.dst} {rate_of(one.bytes_per_s)} go through, on the quickest link"
          f" {rate_of(one.usual_bytes_per_s)}: too few others are quick to say that it is slow"
          for one in result.unclear_links),
        *(f"rank {rank} could not be measured ({one_line(why)})" for rank, why in sorted(result.problems.items())),
    ]  # fmt: skip
    if not found:
        found = [
            f"no rank takes {result.seen_from:.1f} times as long as the rest, or more"
            f"{', and no link is slow' * (result.compared_links > 0 and not result.missed_links)}"
            if result.seen_from
            else "too little was measured to compare"
        ]
    if not result.problem:
        return f"validation: {'; '.join(found)} ({counts}; {paused})"
    said = [f"given up, {one_line(result.problem)}"]
    if result.measured_ranks or result.measured_links:
        said.append(f"until then {counts}: {'; '.join(found)}")
    if result.paused_s:
        said.append(paused)
    return f"validation: {'; '.join(said)}"


_WORK = {"compute": "computation", "memory": "copy of memory"}


def rate_of(bytes_per_s: float) -> str:
    """Bytes per second with a unit that people read."""
    for unit in ("B/s", "KB/s", "MB/s"):
        if bytes_per_s < 1000:
            return f"{bytes_per_s:.3g} {unit}"
        bytes_per_s /= 1000
    return f"{bytes_per_s:.3g} GB/s"
