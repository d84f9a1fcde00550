"""A path from the root, for a process that may work elsewhere and for an error that says where we looked."""

from __future__ import annotations

from pathlib import Path


def absolute(path: Path) -> Path:
    """The path from the root; as it is where our own working directory has been removed."""
    try:
        return path.absolute()
    except OSError:
        return path
