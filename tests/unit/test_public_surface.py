"""What users depend on, pinned: the public names and the command line."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

import whichrank
from whichrank.surface.cli import COMMANDS, cli

PUBLIC_NAMES = [
    "AnalyzerConfig",
    "Config",
    "ConfigError",
    "Culprit",
    "FormatError",
    "Incident",
    "IncompleteDataError",
    "RunConfig",
    "SensorError",
    "UsageError",
    "WhichrankError",
    "__version__",
    "decode_incident",
    "encode_incident",
    "headline",
    "load_config",
    "paragraph",
    "phase",
    "tokens",
]

NAMES_FOR_TRAINING_CODE = ["Balancer", "MegatronBalancer", "Reorderable"]

# Command -> its arguments and options. A change here is a change for users: say it in CHANGELOG.md.
COMMAND_LINE = {
    "agent": ["--job", "--connect", "--insecure", "--wait", "--run-pid"],
    "analyze": ["PATHS", "--json"],
    "bench": [],
    "bench demo": ["--slow", "--json", "--no-steps", "--keep", "--results", "--fault", "--seeds"],
    "bench dumps": ["--case", "--recorded", "--json"],
    "bench fail-slow": ["--series", "--seed", "--annotated", "--recorded", "--record", "--runs", "--json"],
    "bench gate": ["--pauses", "--only", "--json"],
    "bench mitigate": ["--only", "--seed", "--json"],
    "bench iterations": ["--only", "--no-steps", "--json"],
    "bench logs": ["--count", "--first", "--speed", "--json"],
    "bench matrix": ["--json", "--no-steps", "--keep", "--results", "--fault", "--seeds"],
    "bench overhead": ["--json", "--quick", "--only"],
    "bench paper": ["--runs", "--only", "--results", "--plots", "--json"],
    "bench reading": ["--entries", "--trace-mb", "--json"],
    "bench scale": ["--json", "--quick", "--only"],
    "completion": ["SHELL"],
    "demo": [
        *("--fault", "--ranks", "--seed", "--launcher", "--layout", "--hang-timeout", "--no-steps", "--json"),
        "--list",
    ],
    "doctor": ["--json"],
    "env": ["--job", "--join", "--insecure"],
    "export": ["PATHS", "--format", "-o/--output", "--max-mib", "--redact", "--force"],
    "lab": [],
    "lab down": ["NAMES", "--all"],
    "lab list": [],
    "lab run": [
        *("--scenario", "--workload", "--seed", "--ranks", "--lab", "--nodes", "--leaves", "--spines", "--ports"),
        *("--rate", "--launcher", "--validate", "--slow-window", "--no-steps", "--keep", "--json"),
    ],
    "lab score": [
        "--scenarios",
        "--seeds",
        "--methods",
        "--launcher",
        "--results",
        "--keep",
        "--again",
        "--no-steps",
        "--picture",
        "--json",
    ],
    "lab status": ["--json"],
    "lab up": ["--name", "--nodes", "--leaves", "--spines", "--ports", "--rate"],
    "mitigate": [],
    "mitigate handover": ["--no-checkpoint", "RUN", "--json"],
    "mitigate apply": ["STEP", "RUN", "--json"],
    "mitigate plan": ["RUN", "--json"],
    "mitigate revert": ["STEP", "RUN", "--json"],
    "mitigate status": ["RUN", "--json"],
    "ras": ["PLACE", "--polls", "--every", "--json"],
    "replay": ["PATH", "--methods", "--json"],
    "report": ["PATHS", "-o/--output", "--layout", "--redact", "--force"],
    "run": [
        *("--hang-timeout", "--slow-window", "--output", "--serve", "--join", "--insecure", "--quiet", "--record"),
        "--validate",
        "--mitigate",
        "--checkpoints",
        "JOB_COMMAND",
    ],
    "sim": [
        "--layout",
        "--schedule",
        "--microbatches",
        "--layers",
        "--fault",
        "--factor",
        "--seed",
        "--output",
        "--json",
    ],
    "stacks": ["JOB", "--suspects", "--rank", "--all-frames", "--json"],
    "validate": ["RUN", "--ranks", "--sizes", "--max-pause", "--wait", "--floor", "--learn", "--json"],
    "watch": ["JOB", "--once", "--json"],
    "why": ["TARGET", "--json"],
}

HEAVY = ("torch", "numpy", "zmq", "rich", "msgspec")


def test_public_names_are_pinned() -> None:
    assert whichrank.__all__ == PUBLIC_NAMES
    assert whichrank.__all__ == sorted(whichrank.__all__)
    assert len(whichrank.__all__) <= 20


def test_names_for_training_code_are_pinned() -> None:
    import whichrank.torch

    assert whichrank.torch.__all__ == NAMES_FOR_TRAINING_CODE


@pytest.mark.parametrize("name", PUBLIC_NAMES)
def test_public_name_resolves(name: str) -> None:
    assert getattr(whichrank, name) is not None
    assert name in dir(whichrank)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = whichrank.nonsense


def test_command_line_is_pinned() -> None:
    context = click.Context(cli)
    found = {}
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        assert command.name == name
        assert command.help
        found[name] = [parameter_name(parameter) for parameter in command.params]
        if isinstance(command, click.Group):
            for inner, part in command.commands.items():
                assert part.help
                found[f"{name} {inner}"] = [parameter_name(parameter) for parameter in part.params]
    assert found == COMMAND_LINE
    assert sorted(COMMANDS) == sorted(name for name in COMMAND_LINE if " " not in name)


def parameter_name(parameter: click.Parameter) -> str:
    if isinstance(parameter, click.Option):
        return "/".join([*parameter.opts, *parameter.secondary_opts])
    assert parameter.name is not None
    return parameter.name.upper()


@pytest.mark.parametrize("program", ["import whichrank", "from whichrank.surface.cli import main; main(['--help'])"])
def test_start_imports_nothing_heavy(program: str) -> None:
    # GIVEN a fresh interpreter, WHEN it imports the package or prints the help of all commands
    code = f"{program}\nimport sys\nprint([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    # THEN no heavy module was needed
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize(
    "module",
    ["surface.trial.show", "testbed.bench.campaign", "testbed.bench.methods.campaign", "testbed.bench.overhead_lab"],
)
def test_who_starts_jobs_needs_no_torch_itself(module: str) -> None:
    # GIVEN what gives orders to jobs, WHEN it is imported in a fresh interpreter
    snapshot = f"import whichrank.{module}, sys; print('torch' in sys.modules)"
    # THEN the seconds that an import of torch takes are left to the jobs
    assert (
        subprocess.run([sys.executable, "-c", snapshot], capture_output=True, text=True, check=True).stdout == "False\n"
    )
