"""Every error that whichrank raises on purpose.

    WhichrankError                  exit 1   base; catch this one
    ├── UsageError                  exit 2   the arguments do not fit together
    │   └── ConfigError             exit 2   a setting in a file, the environment or a flag is wrong
    ├── IncompleteDataError         exit 5   what was to be read is missing or damaged
    ├── FormatError                 exit 1   bytes that are not ours, or of a version this whichrank does not know
    │   ├── IncidentFormatError
    │   ├── RingFormatError
    │   └── EnvelopeFormatError
    └── SensorError                 exit 1   a sensor cannot be built, loaded or switched on
        └── NativeLibraryError               a file of the native part is missing or does not load

A user who meets an error wants three things, so each one carries them: what happened, where, and the command that
mends it. Only `whichrank.surface.cli.main`, and the agent of a run, print errors and turn them into exit codes; library
code raises.
"""

from __future__ import annotations

from typing import ClassVar


class WhichrankError(Exception):
    """Base of all errors of whichrank.

    Attributes:
        exit_code: What the command line exits with.
        what: One sentence: what happened.
        where: File, line, key, host or rank; empty if the sentence says it.
        mend: A command to run or a step to take; empty if there is none.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, where: str = "", mend: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.mend = mend

    def __str__(self) -> str:
        lines = [self.what]
        if self.where:
            lines.append(f"  where: {self.where}")
        if self.mend:
            lines.append(f"  mend:  {self.mend}")
        return "\n".join(lines)


class UsageError(WhichrankError):
    """The arguments of a command do not fit together."""

    exit_code = 2


class ConfigError(UsageError):
    """A setting is unknown or has a wrong value."""


class IncompleteDataError(WhichrankError):
    """What was to be read is missing or damaged."""

    exit_code = 5


class FormatError(WhichrankError):
    """Foreign bytes, or a version of a format that this whichrank does not know."""


class IncidentFormatError(FormatError):
    """A text that is no incident of a known version."""


class RingFormatError(FormatError):
    """A file that is no ring of a known version."""


class EnvelopeFormatError(FormatError):
    """A message that is no envelope of a known version."""


class SensorError(WhichrankError):
    """A sensor cannot be built, loaded or switched on. Training goes on without it."""


class NativeLibraryError(SensorError):
    """A file of the native part is missing or does not load."""
