"""Called by `import torch` itself, through the entry point group `torch.backends`, in every process that imports torch.

So it is inert unless the process was started under whichrank: one look at the environment. Under whichrank it
switches the c10d sensor on; where the launcher reported this process its rank, it also makes the ring at once, so that
a rank that never reaches `init_process_group` is seen by its empty ring.

Helpers of a rank (data-loader workers, compile workers) inherit the rank's environment. They are told apart by
`WHICHRANK_RANK_PID`, which the first process of a rank sets; they get a ring only if they join a process group.

Fails open: whatever goes wrong here is said once on stderr, and the job goes on.
"""

from __future__ import annotations

import os
import sys

_done_in_pid = 0


def autoload() -> None:
    """Switch the sensors of this process on, if it runs under whichrank."""
    global _done_in_pid
    if "WHICHRANK_DIR" not in os.environ or os.environ.get("WHICHRANK_DISABLE") == "1":
        return
    if _done_in_pid == os.getpid():
        return
    _done_in_pid = os.getpid()
    try:
        from whichrank.sensors.process import enable

        enable()
    except Exception as error:  # never break training
        print(f"whichrank: sensors are off in this process: {error}", file=sys.stderr)
