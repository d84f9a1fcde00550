"""What the configuration of a job says of its layout and schedule."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from whichrank.errors import UsageError
from whichrank.stage.config_file import MOST_CHARACTERS, configured
from whichrank.stage.layout import ROLES, Layout

MEGATRON = """
#!/bin/bash
torchrun --nproc-per-node 8 pretrain_gpt.py \\
    --tensor-model-parallel-size 8 --sequence-parallel \\
    --pipeline-model-parallel-size=4 \\
    # --context-parallel-size 4
    --context-parallel-size "2" --num-layers 64 \\
    --num-layers-per-virtual-pipeline-stage \\
    4 --expert-model-parallel-size 2 \\
    --micro-batch-size 1 --global-batch-size 512
"""
PRINTED = """
using world size: 16, data-parallel size: 2
0: ------------------------ arguments ------------------------
0:   context_parallel_size ........................... 1
0:   data_parallel_size .............................. 2
0:   expert_model_parallel_size ...................... 1
0:   global_batch_size ............................... 64
0:   micro_batch_size ................................ 4
0:   num_layers ...................................... 24
0:   num_layers_per_virtual_pipeline_stage ........... None
0:   pipeline_model_parallel_size .................... 4
0:   rampup_batch_size ............................... None
0:   tensor_model_parallel_size ...................... 2
0:   use_tp_pp_dp_mapping ............................ True
0:   virtual_pipeline_model_parallel_size ............ None
0: -------------------- end of arguments ---------------------
"""
TORCHTITAN = """
[training]
local_batch_size = 16

[parallelism]
data_parallel_replicate_degree = 2
data_parallel_shard_degree = 4
tensor_parallel_degree = 8
pipeline_parallel_degree = 2
pipeline_parallel_schedule = "Interleaved1F1B"
pipeline_parallel_microbatch_size = 2
context_parallel_degree = 1
"""
DEEPSPEED = {
    "train_batch_size": 256,
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": "auto",
    "zero_optimization": {"stage": 1},
    "pipeline": {"stages": 4, "partition": "best"},
    "tensor_parallel": {"autotp_size": 2},
    "sequence_parallel_size": 2,
    "expert_parallel": {"enabled": True, "autoep_size": 4},
}


def test_a_megatron_script_is_read() -> None:
    found = configured(MEGATRON)
    assert found.degrees == {"tp": 8, "pp": 4, "cp": 2, "ep": 2}
    assert found.keys["pp"] == "--pipeline-model-parallel-size"
    assert (found.schedule, found.stages_per_rank, found.layers) == ("Interleaved1F1B", 4, 64)
    assert found.layout(128) == Layout(tp=8, pp=4, cp=2, dp=2, ep=2)
    assert found.microbatches_with(2) == 256
    assert found.microbatches_with(3) is None


def test_the_arguments_that_megatron_prints_are_read() -> None:
    found = configured(PRINTED)
    assert found.degrees == {"tp": 2, "pp": 4, "cp": 1, "ep": 1, "dp": 2}
    assert found.keys["dp"] == "data_parallel_size"
    assert (found.schedule, found.stages_per_rank, found.microbatches_with(2)) == ("1F1B", None, 8)
    assert found.layout(16) == Layout(tp=2, pp=4, dp=2, order=("tp", "cp", "pp", "dp"))


def test_a_flag_takes_no_option_for_its_value() -> None:
    text = "--use-tp-pp-dp-mapping --tensor-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 3"
    found = configured(text)
    assert (found.order, found.degrees, found.stages_per_rank) == (("tp", "cp", "pp", "dp"), {"tp": 2}, 3)


def test_a_growing_batch_has_no_number_of_microbatches() -> None:
    found = configured("--micro-batch-size 1 --global-batch-size 64 --rampup-batch-size 32 32 1000")
    assert found.microbatches_with(1) is None


def test_embedding_and_loss_count_as_layers_where_megatron_does() -> None:
    text = "--num-layers 30 --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 4"
    more = " --account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split"
    assert configured(text + more).stages_per_rank == 2
    with pytest.raises(UsageError) as caught:
        configured(text)
    assert caught.value.where == "--num-layers-per-virtual-pipeline-stage"


def test_torchtitan_is_read() -> None:
    found = configured(TORCHTITAN)
    assert found.degrees == {"tp": 8, "pp": 2, "cp": 1, "dp": 8}
    assert found.keys["dp"] == "parallelism.data_parallel_shard_degree"
    assert (found.schedule, found.microbatches) == ("Interleaved1F1B", 8)
    # WHEN shards are what is left THEN nothing is said of replicas
    left = TORCHTITAN.replace("shard_degree = 4", "shard_degree = -1")
    assert "dp" not in configured(left).degrees
    assert configured(left).layout(64).dp == 4


def test_deepspeed_is_read() -> None:
    found = configured(json.dumps(DEEPSPEED))
    assert found.degrees == {"pp": 4, "tp": 2, "cp": 2, "ep": 4}
    assert found.keys["tp"] == "tensor_parallel.autotp_size"
    assert found.microbatches_with(8) == 8
    assert configured(json.dumps(DEEPSPEED | {"gradient_accumulation_steps": 16})).microbatches == 16
    # Where it is left to the framework, nothing is said.
    assert configured('{"pipeline": {"stages": "auto"}, "train_batch_size": "auto"}').degrees == {}


def test_ours_is_read() -> None:
    text = '[layout]\ntp = 2\npp = 4\norder = ["tp", "cp", "pp", "dp"]\n[schedule]\nname = "GPipe"\nmicrobatches = 8\n'
    found = configured(text)
    assert found.layout(24) == Layout(tp=2, pp=4, dp=3, order=("tp", "cp", "pp", "dp"))
    assert (found.schedule, found.microbatches, found.keys["tp"]) == ("GPipe", 8, "layout.tp")


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("--tensor-model-parallel-size ${TP}", "--tensor-model-parallel-size", "'${TP}' is no whole number"),
        ("--tensor-model-parallel-size 0", "--tensor-model-parallel-size", "'0' is no whole number"),
        ("--tensor-model-parallel-size", "--tensor-model-parallel-size", "'' is no whole number"),
        ("[layout]\ntp = true", "layout.tp", "True is no whole number"),
        ("[layout]\ntp = [1]", "layout.tp", "it is no whole number"),
        ("[layout]\ntp = 0x" + "f" * 6000, "layout.tp", "it is no whole number"),
        ("[layout]\ntp = 131073", "layout.tp", "131,073 ranks are more than 131,072"),
        ("[layout]\ntensor = 2", "layout.tensor", "there is no such key"),
        ('[layout]\norder = ["tp"]', "layout.order", "once each"),
        ("[schedule]\nname = 1", "schedule.name", "it is no text"),
        ("[parallelism]\ntensor_parallel_degree = '8'x", "", "this is no TOML"),
        ('{"pipeline": 3}', "pipeline", "it is no table"),
        ('{"pipeline": {"stages": 1.5}}', "pipeline.stages", "1.5 is no whole number"),
        ("{", "", "this is no JSON"),
        ('{"a":' + "[" * 100_000, "", "this is no JSON"),
        ("[layout]\na = " + "[" * 100_000, "", "this is no TOML"),
        (
            "[training]\nlocal_batch_size = 3\n[parallelism]\npipeline_parallel_microbatch_size = 2",
            "parallelism.pipeline_parallel_microbatch_size", "do not make a batch of 3",
        ),
        ("import torch", "", "no layout of a job was found"),
        ("", "", "no layout of a job was found"),
        ("x" * (MOST_CHARACTERS + 1), "", "at most 1,048,576 characters"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(text: str, where: str, what: str) -> None:
    with pytest.raises(UsageError) as caught:
        configured(text)
    assert caught.value.where == where
    assert what in caught.value.what


@pytest.mark.parametrize(
    "table", ["[layout]\n{} = 1", "[layout]\n[{}]", "[layout]\ntp = 1\n x . {} = 1", "[layout]\nx = {{{} = 1}}"]
)
def test_key_of_many_parts_is_refused_at_once(table: str) -> None:
    with pytest.raises(UsageError, match="too many parts"):
        configured(table.format("a." * 50_000 + "b"))


def test_degrees_that_do_not_make_the_ranks_are_refused() -> None:
    with pytest.raises(UsageError, match="makes 16 ranks, and the job has 17"):
        configured("--tensor-model-parallel-size 8").layout(17)


VALUES = st.one_of(st.integers(), st.floats(), st.booleans(), st.none(), st.text(max_size=5), st.just("auto"))


@settings(max_examples=300, deadline=None)
@example('{"tensor_parallel": {"autotp_size": Infinity}}')
@example("[layout]\ntp = 1979-05-27")
@given(
    st.one_of(
        st.text(),
        st.text(alphabet="[]{}\"'=-. \\\n\t#taply0123 layoutparallelism_size"),
        st.sampled_from([MEGATRON, PRINTED, TORCHTITAN, json.dumps(DEEPSPEED)]).flatmap(
            lambda text: st.tuples(st.integers(0, len(text)), st.integers(0, len(text)), st.text(max_size=4)).map(
                lambda cut: text[: cut[0]] + cut[2] + text[cut[1] :]
            )
        ),
        st.dictionaries(
            st.sampled_from([*DEEPSPEED, "x"]), st.one_of(VALUES, st.dictionaries(st.text(max_size=12), VALUES))
        ).map(json.dumps),
    )
)
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = configured(text)
    except UsageError as error:
        refused = error
    else:
        assert set(found.degrees) == set(found.keys) <= set(ROLES)
        assert all(many >= 1 for many in found.degrees.values())
        return
    assert refused.what.isprintable()
