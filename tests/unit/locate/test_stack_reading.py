"""What a stack says of a rank that others wait for."""

from __future__ import annotations

import pytest

from whichrank.locate.stack_reading import waits_for_another_process, writes_checkpoint
from whichrank.model.telemetry import Stack


def stack(*frames: str) -> Stack:
    return Stack("MainThread", True, False, list(frames))


@pytest.mark.parametrize(
    "frame",
    [
        "save (torch/serialization.py:967)",
        "_save (torch/serialization.py:1268)",
        "write_data (torch/distributed/checkpoint/filesystem.py:710)",
        "save_checkpoint (train.py:80)",
        "Trainer.save_model_state (trainer.py:12)",
        "write_checkpoint (errands.py:44)",
        "checkpoint_and_save (loop.py:3)",
        "dump (pickle.py:1)",
    ],
)
def test_frames_that_write_training_state(frame: str) -> None:
    assert writes_checkpoint(stack("sleep (x.py:1)", frame, "main (train.py:9)"))


@pytest.mark.parametrize(
    "frame",
    [
        "_Checkpoint.backward (ddp_overlap.py:27)",
        "CheckpointFunction.backward (torch/utils/checkpoint.py:320)",
        "checkpoint (torch/utils/checkpoint.py:512)",
        "recompute_fn (torch/utils/checkpoint.py:1400)",
        "CheckpointWrapper.forward (torch/distributed/algorithms/_checkpoint/checkpoint_wrapper.py:168)",
        "restore_rng_state (megatron/core/tensor_parallel/random.py:90)",
        "load_checkpoint (train.py:33)",
        "load (torch/serialization.py:1500)",
        "Writer.flush (tensorboard/writer.py:5)",
    ],
)
def test_activation_checkpointing_writes_nothing(frame: str) -> None:
    assert not writes_checkpoint(stack("sleep (x.py:1)", frame, "main (train.py:9)"))


def test_frames_of_the_sensors_do_not_hide_what_a_thread_waits_in() -> None:
    ours = ["_waited (whichrank/sensors/remote.py:187)", "_awaited (/opt/whichrank/sensors/remote.py:170)"] * 2
    theirs = ["wait_all (torch/futures/__init__.py:330)", "main (train.py:9)"]
    assert waits_for_another_process(ours + theirs)
    assert not waits_for_another_process(["a (x.py:1)", "b (x.py:2)", "c (x.py:3)", *theirs])
