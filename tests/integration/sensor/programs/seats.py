"""Forks the ranks of a job from one process that has imported torch: `seats.py PROGRAM RANKS`."""

import atexit
import os
import runpy
import sys
import traceback

watched = os.environ.pop("WHICHRANK_DIR", None)  # the parent is no rank
import torch.distributed  # noqa: E402

assert torch.distributed.is_available()

program, ranks = sys.argv[1], int(sys.argv[2])
sys.path.insert(0, os.path.dirname(program))  # noqa: PTH120


def be_rank(rank: int) -> int:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
    try:
        if watched:
            os.environ["WHICHRANK_DIR"] = watched
            from whichrank.sensors.autoload import autoload

            autoload()
        sys.argv = [program]
        runpy.run_path(program, run_name="__main__")
    except SystemExit as end:
        return int(end.code or 0)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        atexit._run_exitfuncs()  # as at the end of an interpreter, which `os._exit` leaves out
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


children = []
for rank in range(ranks):
    child = os.fork()
    if child == 0:
        os._exit(be_rank(rank))
    children.append(child)
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
sys.exit(next((code if code > 0 else 128 - code for code in codes if code), 0))
