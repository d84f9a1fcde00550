"""The ranks of one node as a launcher starts them: FIRST COUNT WORLD MASTER_PORT.

They meet in one group and compute; the program ends with its standard input, with code 5. `stop RANK` stops a rank
while the others wait for it. $GROUP is the name of the group.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from rank_process import RankProcess

CODE = 5


def main(first: int, count: int, world: int, port: int) -> None:
    """Start them, and obey."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(world)}
    members = ",".join(map(str, range(world)))
    with ExitStack() as stack:
        ranks, stopped = {}, set()
        for rank in range(first, first + count):
            os.environ["RANK"] = str(rank)
            ranks[rank] = stack.enter_context(RankProcess(Path(os.environ["WHICHRANK_DIR"]), rank, world))
            ranks[rank].do(f"comm {os.environ.get('GROUP', 'world')} {rank} {members}")
            ranks[rank].do("op 0 100")
        print("under way", flush=True)
        for line in sys.stdin:
            struck = int(line.split()[1])
            stopped.add(struck)
            os.kill(ranks[struck].pid, signal.SIGSTOP)
            for rank, process in ranks.items():
                if rank != struck:
                    for step in ("begin 0", "issued", "wait"):
                        process.do(step)
        for rank in ranks.keys() - stopped:
            ranks[rank].order("exit 0")
            ranks[rank].process.wait()
    sys.exit(CODE)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
