"""States of all places of a job on disk, so that another job can go on from there.

One folder for each iteration, with a file for each place, and `checkpoint.json`, which is written last: without it the
checkpoint is not whole, and nobody reads it. All nodes must see the same folder. Files hold plain values and tensors.
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Final

from whichrank.errors import UsageError
from whichrank.model.checkpoint import ABOUT, FOLDER, iterations_of, name_of
from whichrank.torch.state import State

MOST_BYTES: Final = 1 << 24
"""Of `checkpoint.json`."""


class Checkpoints:
    """In one folder.

    Args:
        folder: Made when the first one is written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def begin(self, iterations: int) -> None:
        """Make the folder of a checkpoint; what was begun or written there before is not whole any more.

        Args:
            iterations: That are done.

        Raises:
            OSError: It cannot be made.
        """
        folder = self._of(iterations)
        _make_private(folder)
        (folder / ABOUT).unlink(missing_ok=True)

    def write(self, iterations: int, place: int, state: State) -> int:
        """Write the state of one place.

        Returns:
            The checksum of its file.

        Raises:
            OSError: It cannot be written.
            Exception: It holds something that cannot be read again without running code of the program.
        """
        import torch

        State.outline_of(state.head())
        path = self._path(iterations, place)
        own = State(state.outline, [_alone(tensor) for tensor in state.tensors])
        with _written_whole(path) as file:
            torch.save(own.state_dict(), file)
        return _checksum(path)

    def finish(self, iterations: int, checksums: Sequence[int]) -> None:
        """All places have been written: it is whole.

        Args:
            iterations: That are done.
            checksums: Of their files, by place.

        Raises:
            OSError: The file of a place is not here, or nothing can be written.
        """
        for place in range(len(checksums)):
            self._path(iterations, place).stat()
        about = {"schema": "whichrank.checkpoint/1", "iterations": iterations, "checksums": list(checksums)}
        with _written_whole(self._of(iterations) / ABOUT) as file:
            file.write(json.dumps(about).encode())

    def newest(self) -> int:
        """Iterations that the one has done that was written last, of those that are whole; 0: there is none."""
        found = [(0.0, 0)]
        with contextlib.suppress(OSError):
            for entry in os.scandir(self._folder):
                if iterations := iterations_of(entry.name):
                    with contextlib.suppress(OSError):
                        found.append(((Path(entry) / ABOUT).stat().st_mtime, iterations))
        return max(found)[1]

    def load(self, iterations: int, place: int, places: int) -> State:
        """The state of one place.

        Args:
            iterations: That were done.
            place: Whose state.
            places: Of the job that goes on from there.

        Raises:
            OSError: It cannot be read.
            UsageError: It is of a job with another number of places, or it was damaged.
        """
        import torch

        where = str(self._of(iterations))
        checksums = self._checksums(iterations)
        if len(checksums) != places:
            what = f"this checkpoint is of a job of {len(checksums)} ranks, and this one has {places}"
            raise UsageError(what, where=where, mend="start as many ranks, with the same mesh")
        path = self._path(iterations, place)
        if _checksum(path) != checksums[place]:
            raise UsageError(f"the state of place {place} is not what was written", where=where)
        return State.of(torch.load(path, map_location="cpu", weights_only=True))

    def _checksums(self, iterations: int) -> list[int]:
        path = self._of(iterations) / ABOUT
        with path.open("rb") as file:
            content = file.read(MOST_BYTES)
        try:
            return [int(one) for one in json.loads(content)["checksums"]]
        except (ValueError, TypeError, KeyError) as error:
            raise UsageError("this says nothing of a checkpoint", where=str(path)) from error

    def _of(self, iterations: int) -> Path:
        return self._folder / name_of(iterations)

    def _path(self, iterations: int, place: int) -> Path:
        return self._of(iterations) / f"place-{place}.pt"


@contextlib.contextmanager
def _written_whole(path: Path) -> Iterator[IO[bytes]]:
    """A file for this user alone, which is there when all of it is on the disk."""
    part = path.with_name(f"{path.name}.part")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def _make_private(folder: Path) -> None:
    """Make a folder and those above it that are missing, for this user alone."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir(mode=0o700, exist_ok=True)  # other ranks make it as well


def _alone(tensor: Any) -> Any:
    """Without what else lies in its storage: that would be written, too."""
    is_part = tensor.untyped_storage().nbytes() > tensor.numel() * tensor.element_size()
    return tensor.clone() if is_part else tensor


def _checksum(path: Path) -> int:
    found = 0
    with path.open("rb") as file:
        while piece := file.read(1 << 22):
            found = zlib.crc32(piece, found)
    return found


def told() -> Checkpoints | None:
    """Where whoever started the job wants them; None if they want none."""
    folder = os.environ.get(FOLDER)
    return Checkpoints(Path(folder)) if folder else None
