"""Forks the ranks of one node from one process that has imported torch: `node.py FIRST HERE WORLD PORT`.

They train until the file `finish` is in FOLDER; then the node ends with code 7, as a script may that has its reasons.
"""

import atexit
import os
import sys
import traceback
from pathlib import Path

watched = os.environ.pop("WHICHRANK_DIR", None)  # the parent is no rank
import torch.distributed  # noqa: E402
from training import train  # noqa: E402

CODE = 7

assert torch.distributed.is_available()
first, here, world, port = map(int, sys.argv[1:])


def be_rank(rank: int, local_rank: int) -> int:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(local_rank)}
    os.environ |= {"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(here)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    try:
        if watched:
            os.environ["WHICHRANK_DIR"] = watched
            from whichrank.sensors.autoload import autoload

            autoload()
        train(rank, Path(os.environ["FOLDER"]))
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        atexit._run_exitfuncs()  # as at the end of an interpreter, which `os._exit` leaves out
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


children = []
for local_rank in range(here):
    child = os.fork()
    if child == 0:
        os._exit(be_rank(first + local_rank, local_rank))
    children.append(child)
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
sys.exit(1 if any(codes) else CODE)
