"""What the configuration of a job says of its layout and schedule: the text of it is read, and nothing of it is run.

Read are
- Megatron's arguments: a command line or a script with one, or the list of arguments that Megatron prints in its log,
- torchtitan's TOML, DeepSpeed's JSON,
- and our own TOML, with the names of `Layout`:

      [layout]
      tp = 2
      pp = 4
      dp = 8
      order = ["tp", "cp", "dp", "pp"]

      [schedule]
      name = "Interleaved1F1B"
      stages_per_rank = 2
      layers = 64
      microbatches = 16

What a configuration leaves open, or leaves to its framework ("auto", -1, None), is not said here either. Names of
options are those of Megatron-LM `megatron/training/arguments.py`, torchtitan `torchtitan/config/`, and DeepSpeed
`deepspeed/runtime/config.py`.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from whichrank.errors import UsageError
from whichrank.stage.layout import DIMENSIONS, MOST_RANKS, ROLES, Layout

MOST_CHARACTERS: Final = 1 << 20
"""Of a configuration; a log is longer, and its list of arguments stands at its head."""
MOST: Final = 1 << 20
"""The greatest number that is believed, of ranks, layers or a batch: more than any job has."""

_MEGATRON: Final = {
    "tp": "tensor_model_parallel_size", "pp": "pipeline_model_parallel_size", "cp": "context_parallel_size",
    "ep": "expert_model_parallel_size", "dp": "data_parallel_size",
}  # fmt: skip
_MEGATRON_ORDER: Final = ("tp", "cp", "pp", "dp")
"""With --use-tp-pp-dp-mapping."""
_TORCHTITAN: Final = {
    "tp": "tensor_parallel_degree", "pp": "pipeline_parallel_degree", "cp": "context_parallel_degree",
    "ep": "expert_parallel_degree",
}  # fmt: skip
_OURS: Final = {"layout": (*ROLES, "order"), "schedule": ("name", "stages_per_rank", "layers", "microbatches")}
_OPTION: Final = re.compile(r"(?<![\w-])--([a-z][a-z0-9-]{1,63})(?:=|[ \t\\]|\r?\n)*((?!--)\S{1,64})?")
_ARGUMENT: Final = re.compile(r"(?<![\w.])([a-z][a-z0-9_]{1,63}) \.{3,64} (\S{1,64})")
_LONG_KEY: Final = re.compile(r"""(?<![\w-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){16}""")
"""No configuration has a key of so many parts; the time that they take in TOML grows with their square."""
_MEND: Final = "give Megatron's arguments, torchtitan's TOML, DeepSpeed's JSON, or a [layout] table with tp, pp, dp"


@dataclass(frozen=True)
class Configured:
    """What a configuration says; None of what it does not say.

    Attributes:
        framework: ``megatron``, ``torchtitan``, ``deepspeed`` or ``whichrank``.
        degrees: Of parallelism, by role of ROLES, as far as they are said.
        keys: By which key each of them is said.
        order: Of dimensions, the fastest first.
        schedule: Of a pipeline, as torch names it.
        stages_per_rank: Pipeline stages that each rank holds.
        layers: Of the model.
        microbatches: Of an iteration.
        global_batch: Samples of an iteration, of all replicas.
        micro_batch: Samples of a microbatch.
    """

    framework: str
    degrees: Mapping[str, int] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    order: tuple[str, ...] | None = None
    schedule: str | None = None
    stages_per_rank: int | None = None
    layers: int | None = None
    microbatches: int | None = None
    global_batch: int | None = None
    micro_batch: int | None = None

    def layout(self, ranks: int) -> Layout:
        """That of so many ranks: what is not said is 1, but replicas are as many as are left.

        Raises:
            UsageError: The degrees do not make so many ranks.
        """
        degrees = {role: self.degrees.get(role, 1) for role in ROLES}
        if "dp" not in self.degrees:
            degrees["dp"] = max(1, ranks // (degrees["tp"] * degrees["cp"] * degrees["pp"]))
        layout = Layout(**degrees, order=self.order or DIMENSIONS)
        if layout.ranks != ranks:
            raise UsageError(f"{layout.name} makes {layout.ranks:,} ranks, and the job has {ranks:,}", mend=_MEND)
        return layout

    def microbatches_with(self, replicas: int) -> int | None:
        """Of an iteration, if so many replicas share the batch; None where it is not said, or does not divide."""
        if self.microbatches is not None or self.global_batch is None or self.micro_batch is None:
            return self.microbatches
        count, left = divmod(self.global_batch, self.micro_batch * max(replicas, 1))
        return count if count and not left else None


def configured(text: str) -> Configured:
    """Read a configuration.

    Raises:
        UsageError: It is none of those, or a value in it cannot be.
    """
    if len(text) > MOST_CHARACTERS:
        raise UsageError(f"a configuration has at most {MOST_CHARACTERS:,} characters", mend=_MEND)
    if text.lstrip().startswith("{"):
        return _deepspeed(_parsed(text, json.loads, "JSON"))
    if re.search(r"^[ \t]*\[(parallelism|layout|schedule)\]", text, re.MULTILINE):
        tables = _parsed(text, _toml, "TOML")
        return _torchtitan(tables) if "parallelism" in tables else _ours(tables)
    return _megatron(text)


def _parsed(text: str, parse: Any, name: str) -> dict[str, Any]:
    try:
        found = parse(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"this is no {name}: {str(error)[:200]}", mend=_MEND) from error
    return found if isinstance(found, dict) else {}


def _toml(text: str) -> dict[str, Any]:
    for number, line in enumerate(text.splitlines(), 1):
        if _LONG_KEY.search(line):
            raise ValueError(f"a key of line {number} has too many parts")
    return tomllib.loads(text)


class _Keys:
    """Looks values up, and knows by which key each degree was said."""

    def __init__(self, values: Mapping[str, Any], spelled: str = "{}", no_value: tuple[Any, ...] = (None,)) -> None:
        self._values, self._spelled, self._no_value = values, spelled, no_value
        self.degrees: dict[str, int] = {}
        self.keys: dict[str, str] = {}

    def key(self, name: str) -> str:
        """As the user has written it."""
        return self._spelled.format(name.replace("_", "-") if self._spelled.startswith("--") else name)

    def number(self, name: str) -> int | None:
        """A number from 1 to MOST.

        Raises:
            UsageError: It is another one, or no number.
        """
        value = self._values.get(name)
        if value in self._no_value:
            return None
        number = int(value) if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value) else value
        if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= MOST:
            shown = ascii(value) if isinstance(value, str | bool | float) or number in (0, -1) else "it"
            what = f"{shown} is no whole number from 1 to {MOST:,}"
            raise UsageError(what, where=self.key(name), mend="write the number itself")
        return number

    def degree(self, role: str, name: str) -> None:
        """Take a degree if it is said."""
        if (value := self.number(name)) is not None:
            self.say(role, value, self.key(name))

    def say(self, role: str, value: int, key: str) -> None:
        """Take a degree."""
        if value > MOST_RANKS:
            raise UsageError(f"{value:,} ranks are more than {MOST_RANKS:,}", where=key)
        self.degrees[role], self.keys[role] = value, key


def _megatron(text: str) -> Configured:
    printed = dict(_ARGUMENT.findall(text))
    lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    options = {name.replace("-", "_"): value.strip("'\"\\") for name, value in _OPTION.findall(lines)}
    is_printed = any(name in printed for name in _MEGATRON.values())
    values = printed if is_printed else options
    if not any(name in values for name in (*_MEGATRON.values(), "num_layers", "micro_batch_size")):
        raise UsageError("no layout of a job was found in this text", mend=_MEND)
    keys = _Keys(values, "{}" if is_printed else "--{}", (None, "None"))
    for role, name in _MEGATRON.items():
        keys.degree(role, name)
    layers, pp = keys.number("num_layers"), keys.degrees.get("pp")
    per_rank = _megatron_stages_per_rank(keys, values, layers, pp)
    schedule = None
    if pp is not None and pp > 1:
        schedule = "1F1B" if per_rank in (None, 1) else "Interleaved1F1B"
    grows = values.get("rampup_batch_size") not in (None, "None")
    mapping = "use_tp_pp_dp_mapping"
    is_mapped = mapping in values and (not is_printed or values[mapping] == "True")
    return Configured(
        "megatron", keys.degrees, keys.keys, _MEGATRON_ORDER if is_mapped else None, schedule, per_rank, layers,
        global_batch=None if grows else keys.number("global_batch_size"), micro_batch=keys.number("micro_batch_size"),
    )  # fmt: skip


def _megatron_stages_per_rank(keys: _Keys, values: Mapping[str, str], layers: int | None, pp: int | None) -> int | None:
    for name in ("virtual_pipeline_model_parallel_size", "num_virtual_stages_per_pipeline_rank"):
        if (found := keys.number(name)) is not None:
            return found
    each = keys.number("num_layers_per_virtual_pipeline_stage")
    if each is None or layers is None or pp is None:
        return None
    for name in ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split"):
        layers += name in values and values[name] != "False"
    if layers % (pp * each):
        what = f"{layers} layers cannot be shared out among {pp} ranks, {each} for each stage"
        raise UsageError(what, where=keys.key("num_layers_per_virtual_pipeline_stage"))
    return layers // (pp * each)


def _torchtitan(tables: Mapping[str, Any]) -> Configured:
    parallelism, training = (_table(tables, name) for name in ("parallelism", "training"))
    keys = _Keys(parallelism, "parallelism.{}", (None, -1))
    for role, name in _TORCHTITAN.items():
        keys.degree(role, name)
    shards, replicas = (keys.number(f"data_parallel_{what}_degree") for what in ("shard", "replicate"))
    if shards is not None:
        keys.say("dp", shards * (replicas or 1), keys.key("data_parallel_shard_degree"))
    schedule = parallelism.get("pipeline_parallel_schedule")
    trained = _Keys(training, "training.{}", (None, -1))
    local = trained.number("local_batch_size") or trained.number("batch_size")
    micro = keys.number("pipeline_parallel_microbatch_size")
    if local is not None and local % (micro or 1):
        what = f"microbatches of {micro} do not make a batch of {local}"
        raise UsageError(what, where=keys.key("pipeline_parallel_microbatch_size"))
    return Configured(
        "torchtitan", keys.degrees, keys.keys, None, schedule if isinstance(schedule, str) else None,
        microbatches=None if local is None else local // (micro or 1), micro_batch=micro,
    )  # fmt: skip


def _deepspeed(values: Mapping[str, Any]) -> Configured:
    auto = (None, "auto")
    top = _Keys(values, "{}", auto)
    for role, table, name in (("pp", "pipeline", "stages"), ("tp", "tensor_parallel", "autotp_size")):
        part = _Keys(_table(values, table), table + ".{}", auto)
        if (value := part.number(name)) is not None:
            top.say(role, value, part.key(name))
    experts = _table(values, "expert_parallel")
    part = _Keys(experts, "expert_parallel.{}", auto)
    if experts.get("enabled") is True and (value := part.number("autoep_size")) is not None:
        top.say("ep", value, part.key("autoep_size"))
    top.degree("cp", "sequence_parallel_size")
    return Configured(
        "deepspeed", top.degrees, top.keys, microbatches=top.number("gradient_accumulation_steps"),
        global_batch=top.number("train_batch_size"), micro_batch=top.number("train_micro_batch_size_per_gpu"),
    )  # fmt: skip


def _ours(tables: Mapping[str, Any]) -> Configured:
    for table, names in _OURS.items():
        for name in _table(tables, table):
            if name not in names:
                raise UsageError(f"there is no such key; there are {', '.join(names)}", where=f"{table}.{name}")
    layout, schedule = (_table(tables, name) for name in ("layout", "schedule"))
    keys, timed = _Keys(layout, "layout.{}"), _Keys(schedule, "schedule.{}")
    for role in ROLES:
        keys.degree(role, role)
    order: Any = layout.get("order")
    called: Any = schedule.get("name")
    if order is not None and (not isinstance(order, list) or sorted(map(str, order)) != sorted(DIMENSIONS)):
        raise UsageError(f"it does not have {', '.join(DIMENSIONS)} once each", where="layout.order")
    if called is not None and not isinstance(called, str):
        raise UsageError("it is no text", where="schedule.name")
    return Configured(
        "whichrank", keys.degrees, keys.keys, None if order is None else tuple(order), called,
        timed.number("stages_per_rank"), timed.number("layers"), timed.number("microbatches"),
    )  # fmt: skip


def _table(tables: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A table, empty if there is none.

    Raises:
        UsageError: It is something else.
    """
    found = tables.get(name, {})
    if not isinstance(found, dict):
        raise UsageError("it is no table of keys and values", where=name)
    return found
