"""What to collect so that more can be said, where recordings say nothing or too little."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from whichrank.surface.terminal import talk

if TYPE_CHECKING:
    from whichrank.intake.recording import Note

NEXT_TIME: Final = (
    "before the next run, so that each rank leaves a dump when it times out:  export TORCH_NCCL_DUMP_ON_TIMEOUT=1 "
    "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DEBUG_INFO_TEMP_FILE=/shared/dumps/trace_",
    "to have the hang named while it lasts:  whichrank run -- torchrun --nproc-per-node 8 train.py",
    "while a job hangs, on one of its nodes:  whichrank ras",
)
"""Sentences with one command each."""


def advise(notes: Sequence[Note]) -> None:
    """Say what there was, and what to collect, where there is nothing to analyze."""
    for state, files in Counter(note.state for note in notes).items():
        example = next(note for note in notes if note.state == state)
        why = f": {example.what}" if example.what else ""
        talk(f"{files} file{'s' * (files > 1)} {state}, such as '{example.path}'{why}")
    for sentence in NEXT_TIME:
        talk(sentence)
