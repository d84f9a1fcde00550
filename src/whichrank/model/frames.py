"""Frames of a stack, as `function (file:line)`: which are the user's own, and which a framework's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from typing import Final, NamedTuple

_LIBRARY: Final = re.compile(r"site-packages|dist-packages|/lib/python3|<frozen|<string>|importlib|whichrank/sensors/")
_PACKAGE: Final = re.compile(r"(?:site|dist)-packages/([^/()]+)")


def is_own(frame: str) -> bool:
    """Whether a frame is of the user's own code: neither of an installed package nor of Python itself."""
    return not _LIBRARY.search(frame)


class Fold(NamedTuple):
    """Frames in a row that are all the user's own, or of frameworks that the user need not read."""

    is_own: bool
    frames: tuple[str, ...]

    @property
    def package(self) -> str:
        """The package of most frames: `torch`; `Python` for those of no package."""
        names = [found[1] if (found := _PACKAGE.search(frame)) else "Python" for frame in self.frames]
        return max(names, key=names.count)


def folds_of(frames: Sequence[str]) -> list[Fold]:
    """The frames of a stack, the innermost first, in runs of own and foreign ones."""
    return [Fold(own, tuple(run)) for own, run in groupby(frames, is_own)]
