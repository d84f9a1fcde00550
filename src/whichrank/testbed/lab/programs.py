"""The workloads by name, and how many ranks are arranged in each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from whichrank.testbed.demo.layout import Layout

_PACKAGE: Final = "whichrank.testbed.lab.workloads"
_PIPELINE_STAGES: Final = 4


@dataclass(frozen=True)
class Program:
    """A workload.

    Attributes:
        module: To run under a launcher.
        description: One line.
        args: That it takes besides.
        has_layout: It takes `--layout`.
        ranks: It needs a multiple of so many.
    """

    module: str
    description: str
    args: tuple[str, ...] = ()
    has_layout: bool = False
    ranks: int = 2

    def layout(self, ranks: int) -> Layout:
        """How so many ranks are arranged.

        Raises:
            ValueError: They cannot be.
        """
        if ranks % self.ranks:
            raise ValueError(f"this workload needs a multiple of {self.ranks} ranks, not {ranks}")
        if not self.has_layout:
            return Layout(dp=ranks)
        tp = 2 if ranks % (2 * _PIPELINE_STAGES * 2) == 0 else 1
        return Layout(tp=tp, pp=_PIPELINE_STAGES, dp=ranks // (tp * _PIPELINE_STAGES))


PROGRAMS: Final[dict[str, Program]] = {
    "ddp": Program(f"{_PACKAGE}.ddp", "DistributedDataParallel; its reducer issues all-reduces from C++"),
    "fsdp": Program(f"{_PACKAGE}.fsdp", "FSDP2: all-gathers of each block, reduce-scatters of its gradients"),
    "3d": Program(
        f"{_PACKAGE}.threed",
        "pipeline (four stages, 1F1B of torch.distributed.pipelining) x data, from 16 ranks on x tensor parallel",
        has_layout=True,
        ranks=_PIPELINE_STAGES,
    ),
    "pipeline": Program(
        f"{_PACKAGE}.threed",
        "the same with 32 times as much between the stages, so that links of the pipeline matter",
        args=("--rows", "256"),
        has_layout=True,
        ranks=_PIPELINE_STAGES,
    ),
    "ring": Program(f"{_PACKAGE}.ring", "context parallel: keys and values go round a ring by send and receive"),
    "moe": Program(f"{_PACKAGE}.moe", "mixture of experts: uneven all-to-all of tokens"),
}
