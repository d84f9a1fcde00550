"""Settings: a TOML file, then the environment, then flags; a later source wins.

    # whichrank.toml
    [run]
    hang_timeout_s = 120
    [analyzer]
    notice_min_s = 5

The file is `$WHICHRANK_CONFIG`, else `whichrank.toml` in the working directory, else none. In the environment a setting
is `WHICHRANK_` and its name in capitals (`WHICHRANK_HANG_TIMEOUT_S=120`). Setting names are unique over both
tables, except the hang timeout, which `[run]` owns and the analyzer is given.

The environment also carries variables that are no settings, so an unknown name there is refused only if it looks like a
misspelt setting; in a file every unknown key is refused. They are

    WHICHRANK_DISABLE=1     turns everything off
    WHICHRANK_SHM           base folder of the rings instead of /dev/shm/whichrank; must lie on a tmpfs to be fast
    WHICHRANK_JOB           name of the job     \
    WHICHRANK_DIR           folder of its rings  } set by `whichrank run` and `whichrank env` for what they start
    WHICHRANK_CONNECT       where its agents go /
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from whichrank.errors import ConfigError

PREFIX = "WHICHRANK_"
FILE_NAME = "whichrank.toml"

PositiveSeconds = Annotated[float, msgspec.Meta(gt=0)]
Factor = Annotated[float, msgspec.Meta(ge=1)]


class RunConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `whichrank run` is told."""

    hang_timeout_s: PositiveSeconds = 300.0
    """Seconds without progress after which a hang is an alert when there is no hard evidence (CCL-D: 300)."""

    slow_window_s: PositiveSeconds = 60.0
    """Seconds over which a slowdown is judged."""

    output_dir: str | None = None
    """Directory for incidents and stacks (a path); unset: `whichrank-out/<job>`."""

    serve: str | None = None
    """Address (`tcp://HOST:PORT`) on which this machine analyzes for several; unset: this machine only."""

    join: str | None = None
    """Address of the machine that analyzes; unset: analyze here."""

    quiet: bool = False
    """True: print nothing but alerts (no unit)."""


class AnalyzerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Thresholds of the rules of inference."""

    hang_timeout_s: PositiveSeconds = 300.0
    """Seconds without progress before an alert without hard evidence; taken from `[run]`."""

    suspect_after_s: PositiveSeconds = 2.0
    """Seconds that an op must be blocked, at least, before its rank is suspected."""

    notice_min_s: PositiveSeconds = 10.0
    """Seconds that ranks must wait, at least, before a notice."""

    busy_factor: Factor = 3.0
    """Times the hang timeout that a rank is given while it writes or its children work (a ratio)."""

    barrier_factor: Factor = 3.0
    """Times the hang timeout that a barrier is given (a ratio)."""

    tick_s: PositiveSeconds = 0.25
    """Seconds between two looks of the analyzer."""


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings."""

    run: RunConfig = RunConfig()
    """Settings of the command (no unit)."""

    analyzer: AnalyzerConfig = AnalyzerConfig()
    """Thresholds (no unit)."""


# Setting -> its table. `[run]` comes last and so owns the one name that both have.
_TABLE_OF = {
    **dict.fromkeys(AnalyzerConfig.__struct_fields__, "analyzer"),
    **dict.fromkeys(RunConfig.__struct_fields__, "run"),
}
_TABLES: dict[str, type[RunConfig] | type[AnalyzerConfig]] = {"run": RunConfig, "analyzer": AnalyzerConfig}
_FIELD_TYPE: dict[str, Any] = {
    field.name: field.type
    for table in (AnalyzerConfig, RunConfig)
    for field in msgspec.structs.fields(table)  # one entry per setting, as in _TABLE_OF
}


def load_config(
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    path: Path | None = None,
) -> Config:
    """Settings from file, environment and flags.

    Args:
        flags: Setting to value; None values count as not given.
        environ: The environment; the process's own by default.
        path: The TOML file; by default found as the module says. A file that is named must exist.

    Raises:
        ConfigError: A source has an unknown name, a wrong value, or cannot be read.
    """
    environ = os.environ if environ is None else environ
    values: dict[str, dict[str, object]] = {"run": {}, "analyzer": {}}
    for source in (_from_file(_find_file(environ, path)), _from_environment(environ), _from_flags(flags or {})):
        for name, value in source.items():
            values[_TABLE_OF[name]][name] = value
    run = RunConfig(**values["run"])  # type: ignore[arg-type]  # each value was converted to its field's type
    if run.serve and run.join:
        raise ConfigError(
            "serve and join are both set; one machine analyzes and the others join it",
            where=f"serve={run.serve}, join={run.join}",
            mend="give --serve on one machine and --join on the others",
        )
    values["analyzer"]["hang_timeout_s"] = run.hang_timeout_s
    return Config(run=run, analyzer=AnalyzerConfig(**values["analyzer"]))  # type: ignore[arg-type]


def _find_file(environ: Mapping[str, str], path: Path | None) -> Path | None:
    if path is not None:
        return path
    if named := environ.get(PREFIX + "CONFIG"):
        return Path(named)
    default = Path(FILE_NAME)
    return default if default.is_file() else None


def _from_file(path: Path | None) -> dict[str, object]:
    if path is None:
        return {}
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"the settings file cannot be read: {error.strerror}", where=str(path)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the settings file is no TOML: {error}", where=str(path)) from error
    settings: dict[str, object] = {}
    for table, content in document.items():
        if table not in _TABLES:
            hint = f"write it under [{_TABLE_OF[table]}]" if table in _TABLE_OF else _did_you_mean(table, _TABLES)
            raise ConfigError(f"unknown table or key '{table}'", where=str(path), mend=hint)
        if not isinstance(content, dict):
            raise ConfigError(f"'{table}' is a table", where=str(path), mend=f"write [{table}]")
        for name, value in content.items():
            settings[name] = _checked(name, value, table, f"{path}, [{table}] {name}")
    return settings


def _checked(name: str, value: object, table: str, where: str) -> object:
    owner = _TABLE_OF.get(name)
    if owner is None:
        known = _TABLES[table].__struct_fields__
        raise ConfigError(f"unknown setting '{name}'", where=where, mend=_did_you_mean(name, known))
    if owner != table:
        raise ConfigError(f"'{name}' belongs to another table", where=where, mend=f"write it under [{owner}]")
    return _converted(name, value, where, strict=True)


def _from_environment(environ: Mapping[str, str]) -> dict[str, object]:
    settings: dict[str, object] = {}
    for variable, text in environ.items():
        if not variable.startswith(PREFIX):
            continue
        name = variable.removeprefix(PREFIX).lower()
        if name in _TABLE_OF:
            settings[name] = _converted(name, text, f"environment variable {variable}", strict=False)
        elif close := difflib.get_close_matches(name, _TABLE_OF, n=1, cutoff=0.85):
            raise ConfigError(
                f"unknown setting '{variable}' in the environment",
                where=f"{variable}={text}",
                mend=f"did you mean {PREFIX}{close[0].upper()}?",
            )
    return settings


def _from_flags(flags: Mapping[str, object]) -> dict[str, object]:
    settings: dict[str, object] = {}
    for name, value in flags.items():
        if name not in _TABLE_OF:
            raise ConfigError(f"unknown setting '{name}'", where="flags", mend=_did_you_mean(name, _TABLE_OF))
        if value is not None:
            settings[name] = _converted(name, value, "--" + name.removesuffix("_s").replace("_", "-"), strict=True)
    return settings


def _converted(name: str, value: object, where: str, *, strict: bool) -> object:
    """The value in its field's type; `strict=False` reads numbers and true/false out of text."""
    try:
        return msgspec.convert(value, _FIELD_TYPE[name], strict=strict)
    except msgspec.ValidationError as error:
        raise ConfigError(f"'{name}' has a wrong value, {value!r}: {error}", where=where) from error


def _did_you_mean(name: str, known: Mapping[str, object] | tuple[str, ...]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean '{close[0]}'?" if close else "known: " + ", ".join(sorted(known))
