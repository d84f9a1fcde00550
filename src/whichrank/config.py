"""Settings: a TOML file, then the environment, then flags; a later source wins.

    # whichrank.toml
    [run]
    hang_timeout_s = 120
    [analyzer]
    notice_min_s = 5

The file is `$WHICHRANK_CONFIG`, else `whichrank.toml` in the working directory, else none. In the environment a setting
is `WHICHRANK_` and its name in capitals (`WHICHRANK_HANG_TIMEOUT_S=120`). Setting names are unique over both
tables, except the hang timeout and the slow window, which `[run]` owns and the analyzer is given.

The environment also carries variables that are no settings, so an unknown name there is refused only if it looks like a
misspelt setting; in a file every unknown key is refused. They are

    WHICHRANK_DISABLE=1     turns everything off
    WHICHRANK_SHM           base folder of the rings instead of /dev/shm/whichrank; must lie on a tmpfs to be fast
    WHICHRANK_JOB           name of the job     \
    WHICHRANK_DIR           folder of its rings  } set by `whichrank run` and `whichrank env` for what they start
    WHICHRANK_CONNECT       where its agents go /
    WHICHRANK_KEY           key of the job: who has it may report to the analyzer; 64 hexadecimal digits
"""

from __future__ import annotations

import difflib
import os
import stat
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from whichrank.errors import ConfigError, UsageError
from whichrank.model.plain_text import without_key

PREFIX = "WHICHRANK_"
FILE_NAME = "whichrank.toml"
OTHER_VARIABLES: Final = ("disable", "config", "shm", "cache", "job", "dir", "connect", "key", "rank_pid")
"""What else the environment carries, without the prefix and in small letters."""
MOST_BYTES: Final = 1 << 20
"""A larger file is no settings file."""

Seconds = Annotated[float, msgspec.Meta(gt=0, le=31_536_000)]
TickSeconds = Annotated[float, msgspec.Meta(ge=0.01, le=60)]
Factor = Annotated[float, msgspec.Meta(ge=1, le=1000)]

_TAKES: Final[dict[Any, str]] = {
    Seconds: "seconds above 0, at most 31,536,000 (a year)",
    TickSeconds: "seconds from 0.01 to 60",
    Factor: "a number from 1 to 1,000",
    bool: "true or false",
}
_TEXT_TAKES: Final = {
    "output_dir": "the path of a folder",
    "checkpoints": "the path of a folder",
    "serve": "HOST:PORT",
    "join": "HOST:PORT, HOST:PORT/KEY or @FILE",
    "validate": "off or auto",
    "mitigate": "advise, ask or auto",
}
_EXAMPLE: Final = {
    "output_dir": "whichrank-out/mine",
    "checkpoints": "/shared/checkpoints",
    "serve": "0.0.0.0:29480",
    "join": "HOST:29480",
    "validate": "off",
    "mitigate": "auto",
}


class RunConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `whichrank run` is reported."""

    hang_timeout_s: Seconds = 300.0
    """Seconds without progress after which a hang is an alert when there is no hard evidence (CCL-D: 300)."""

    slow_window_s: Seconds = 60.0
    """Seconds over which a slowdown is judged."""

    output_dir: str | None = None
    """Directory for incidents and stacks (a path); unset: `whichrank-out/<job>`."""

    serve: str | None = None
    """Address (`tcp://HOST:PORT`) on which this machine analyzes for several; unset: this machine only."""

    join: str | None = None
    """Address of the machine that analyzes, with the key of the job (`HOST:PORT/KEY`) or without, or a file that holds
    it (`@FILE`); unset: analyze here."""

    insecure: bool = False
    """True: serve or join over TCP without a key. Whoever reaches the port can send false data (no unit)."""

    quiet: bool = False
    """True: print nothing but alerts (no unit)."""

    record: bool = False
    """True: keep all that the analyzer is reported in `telemetry.tape`, for `whichrank replay` (no unit)."""

    validate: Literal["off", "auto"] = "off"
    """`auto`: an alert that names slow ranks or links may pause training for seconds, to prove it (no unit)."""

    mitigate: Literal["advise", "ask", "auto"] = "advise"
    """Other shares of the work for programs with a `Balancer` where a rank is slow. `auto`: they are given;
    `ask`: after a yes; `advise`: it is only said what would help (no unit)."""

    checkpoints: str | None = None
    """Folder that all nodes see, into which programs with a `Reorderable` write their state when somebody asks for it,
    and from which they go on (a path); unset: they write none."""


class AnalyzerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Thresholds of the rules of inference."""

    hang_timeout_s: Seconds = 300.0
    """Seconds without progress before an alert without hard evidence; taken from `[run]`."""

    slow_window_s: Seconds = 60.0
    """Seconds over which a slowdown is judged; taken from `[run]`."""

    suspect_after_s: Seconds = 2.0
    """Seconds that an op must be blocked, at least, before its rank is suspected."""

    notice_min_s: Seconds = 10.0
    """Seconds that ranks must wait, at least, before a notice."""

    busy_factor: Factor = 3.0
    """Times the hang timeout that a rank is given while it writes or its children work (a ratio)."""

    barrier_factor: Factor = 3.0
    """Times the hang timeout that a barrier is given (a ratio)."""

    tick_s: TickSeconds = 0.25
    """Seconds between two snapshots of the analyzer."""


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings."""

    run: RunConfig = RunConfig()
    """Settings of the command (no unit)."""

    analyzer: AnalyzerConfig = AnalyzerConfig()
    """Thresholds (no unit)."""


# Setting -> its table. `[run]` comes last and so owns the names that both have.
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
_DEFAULT: dict[str, Any] = {
    field.name: field.default for table in (AnalyzerConfig, RunConfig) for field in msgspec.structs.fields(table)
}


@dataclass(frozen=True)
class _Place:
    """Where a value was written, for an error about it."""

    said: str
    """As the user wrote it: the variable, the option, or the key and its file."""
    where: str
    mend: str


def load_config(
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    path: Path | None = None,
    checks: Mapping[str, Callable[[str], object]] | None = None,
) -> Config:
    """Settings from file, environment and flags.

    Args:
        flags: Setting to value; None values count as not given.
        environ: The environment; the process's own by default.
        path: The TOML file; by default found as the module says. A file that is named must exist.
        checks: Setting to what looks at its text and raises a UsageError if it cannot be used.

    Raises:
        ConfigError: A source has an unknown name, a wrong value, or cannot be read.
    """
    environ = os.environ if environ is None else environ
    values: dict[str, dict[str, object]] = {"run": {}, "analyzer": {}}
    places: dict[str, _Place] = {}
    for source in (_from_file(*_find_file(environ, path)), _from_environment(environ), _from_flags(flags or {})):
        for name, (value, place) in source.items():
            values[_TABLE_OF[name]][name], places[name] = value, place
    for name, check in (checks or {}).items():
        if value := values[_TABLE_OF[name]].get(name):
            _check(check, name, str(value), places[name])
    run = RunConfig(**values["run"])  # type: ignore[arg-type]  # each value was converted to its field's type
    if run.serve and run.join:
        raise ConfigError(
            "serve and join are both set; one machine analyzes and the others join it",
            where=f"{places['serve'].said} is {run.serve!r}, {places['join'].said} is {without_key(run.join)!r}",
            mend="give --serve on one machine and --join on the others; a variable is taken back with unset",
        )
    values["analyzer"] |= {"hang_timeout_s": run.hang_timeout_s, "slow_window_s": run.slow_window_s}
    return Config(run=run, analyzer=AnalyzerConfig(**values["analyzer"]))  # type: ignore[arg-type]


_Values = dict[str, tuple[object, _Place]]


def _find_file(environ: Mapping[str, str], path: Path | None) -> tuple[Path | None, str]:
    """The file, and how to mend that it is this one."""
    if path is not None:
        return path, "name another file"
    if named := environ.get(PREFIX + "CONFIG"):
        return Path(named), f"export {PREFIX}CONFIG=FILE with a settings file, or unset {PREFIX}CONFIG"
    default = Path(FILE_NAME)
    return default if os.path.isfile(default) else None, f"chmod u+r {FILE_NAME}"  # noqa: PTH113  # never raises


def _from_file(path: Path | None, mend: str) -> _Values:
    if path is None:
        return {}
    try:
        document = tomllib.loads(_content(path, mend))
    except (ValueError, RecursionError) as error:  # ValueError: no TOML, no UTF-8, a number of too many digits
        raise ConfigError(
            f"the settings file {path} is no TOML: {error}",
            where=str(path),
            mend="mend that line; a setting is written as  hang_timeout_s = 300  under  [run]",
        ) from error
    settings: _Values = {}
    for table, content in document.items():
        if table not in _TABLES:
            hint = f"write it under [{_TABLE_OF[table]}]" if table in _TABLE_OF else _did_you_mean(table, _TABLES)
            raise ConfigError(f"unknown table or key '{table}'", where=str(path), mend=hint)
        if not isinstance(content, dict):
            what = f"'{table}' in {path} is {_shown(content)}: it takes a table"
            raise ConfigError(what, where=str(path), mend=f"write [{table}], and settings in the lines below it")
        for name, value in content.items():
            place = _in_file(path, table, name)
            settings[name] = _checked(name, value, table, place), place
    return settings


def _content(path: Path, mend: str) -> str:
    """The text of a file; a pipe would keep us waiting for whoever writes to it."""
    if str(path) == os.devnull:
        return ""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:  # noqa: PTH123
            status = os.fstat(file.fileno())
            if stat.S_ISREG(status.st_mode) and status.st_size <= MOST_BYTES:
                return file.read(MOST_BYTES).decode("utf-8")
            why = "it is too large" if stat.S_ISREG(status.st_mode) else "it is no regular file"
    except OSError as error:
        why = error.strerror or str(error)
    raise ConfigError(f"the settings file {path} cannot be read: {why}", where=str(path), mend=mend)


def _checked(name: str, value: object, table: str, place: _Place) -> object:
    owner = _TABLE_OF.get(name)
    if owner is None:
        known = _TABLES[table].__struct_fields__
        raise ConfigError(f"unknown setting '{name}'", where=place.where, mend=_did_you_mean(name, known))
    if owner != table:
        raise ConfigError(f"'{name}' belongs to another table", where=place.where, mend=f"write it under [{owner}]")
    return _converted(name, value, place, strict=True)


def _from_environment(environ: Mapping[str, str]) -> _Values:
    settings: _Values = {}
    for variable, text in environ.items():
        if not variable.startswith(PREFIX):
            continue
        name = variable.removeprefix(PREFIX).lower()
        if name in _TABLE_OF:
            place = _in_environment(name)
            settings[name] = _converted(name, text, place, strict=False), place
        elif name not in OTHER_VARIABLES:
            _refuse_misspelt(variable, text, name)
    if (text := environ.get(PREFIX + "DISABLE", "")) not in ("", "0", "1"):
        what = f"{PREFIX}DISABLE is {_shown(text)}: it takes 1 or 0"
        raise ConfigError(what, where="the environment", mend=f"export {PREFIX}DISABLE=1, or unset {PREFIX}DISABLE")
    return settings


def _refuse_misspelt(variable: str, text: str, name: str) -> None:
    close = difflib.get_close_matches(name, (*_TABLE_OF, *OTHER_VARIABLES), n=1, cutoff=0.85)
    if close:
        raise ConfigError(
            f"unknown setting '{variable}' in the environment",
            where=f"{variable}={text}",
            mend=f"did you mean {PREFIX}{close[0].upper()}? If not: unset {variable}",
        )


def _from_flags(flags: Mapping[str, object]) -> _Values:
    settings: _Values = {}
    for name, value in flags.items():
        if name not in _TABLE_OF:
            raise ConfigError(f"unknown setting '{name}'", where="flags", mend=_did_you_mean(name, _TABLE_OF))
        if value is not None:
            place = _in_flags(name)
            settings[name] = _converted(name, value, place, strict=True), place
    return settings


def _in_file(path: Path, table: str, name: str) -> _Place:
    line = f'{name} = "{_example(name)}"' if name in _TEXT_TAKES else f"{name} = {_example(name)}"
    return _Place(f"{name} in [{table}] of {path}", f"{path}, [{table}] {name}", f"write under [{table}]:  {line}")


def _in_environment(name: str) -> _Place:
    variable = PREFIX + name.upper()
    return _Place(variable, "the environment", f"export {variable}={_example(name)}, or unset {variable}")


def _in_flags(name: str) -> _Place:
    option = "--output" if name == "output_dir" else "--" + name.removesuffix("_s").replace("_", "-")
    return _Place(option, "the command line", f"{option} {_example(name)}, or leave {option} out")


def _example(name: str) -> str:
    """A value that a setting may have: the default, if it has one that can be written."""
    default = _DEFAULT.get(name)
    if name in _EXAMPLE or default is None:
        return _EXAMPLE.get(name, "")
    return "true" if isinstance(default, bool) else f"{default:g}"


def _converted(name: str, value: object, place: _Place, *, strict: bool) -> object:
    """The value in its field's type; `strict=False` reads numbers and true/false out of text."""
    try:
        converted = msgspec.convert(value, _FIELD_TYPE[name], strict=strict)
    except (msgspec.ValidationError, OverflowError) as error:
        raise _refusal(name, value, place) from error
    if isinstance(converted, str) and "\0" in converted:
        raise _refusal(name, value, place)
    return converted


def _check(check: Callable[[str], object], name: str, text: str, place: _Place) -> None:
    try:
        check(text)
    except UsageError as error:
        what = f"{place.said}: {error.what}; it takes {_TEXT_TAKES[name]}"
        mend = place.mend if "is no address" in error.what else error.mend or place.mend
        raise ConfigError(what, where=place.where, mend=mend) from error


def _refusal(name: str, value: object, place: _Place) -> ConfigError:
    takes = _TEXT_TAKES.get(name) or _TAKES[_FIELD_TYPE[name]]
    return ConfigError(f"{place.said} is {_shown(value)}: it takes {takes}", where=place.where, mend=place.mend)


def _shown(value: object) -> str:
    """A wrong value, however large or deep."""
    if isinstance(value, bool):
        return str(value).lower()
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        return "too long to be shown"
    return text if len(text) <= 80 else f"{text[:77]}..."


def _did_you_mean(name: str, known: Mapping[str, object] | tuple[str, ...]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean '{close[0]}'?" if close else "known: " + ", ".join(sorted(known))
