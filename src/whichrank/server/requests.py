"""What somebody asks of a run that goes on: a file in its folder, which lies there until it is answered.

So two who ask do so one after the other, and who removes the file takes the request back. Whoever may write into the
folder of a run may have it do what can be asked: the folder is the user's alone, and a link or a file of another user's
is not obeyed.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from whichrank.server.private_file import write_private
from whichrank.server.regular_file import open_regular

MOST_BYTES: Final = 1 << 22
"""Of a request."""
MOST_OF_AN_ID: Final = 64


class Request(Protocol):
    """What can be asked."""

    @property
    def id(self) -> str:
        """By which who asks finds the answer."""


R = TypeVar("R", bound=Request)


class Requests(Generic[R]):
    """Requests of one kind.

    Args:
        folder: Of the run.
        name: Of the file.
        kind: What it holds.
    """

    def __init__(self, folder: Path, name: str, kind: type[R]) -> None:
        self._path = folder / name
        self._name = str(self._path)
        self._decoder = msgspec.json.Decoder(kind)
        self._answered = ""

    def ask(self, request: R) -> None:
        """Ask.

        Raises:
            FileExistsError: Somebody else asks; that must be answered first.
            OSError: It cannot be written.
        """
        part = self._path.with_name(f"{self._path.name}.{os.getpid()}.part")
        write_private(part, msgspec.json.encode(request))
        try:
            os.link(part, self._path)  # never in place of another one
        except PermissionError:  # a file system without links
            if os.path.lexists(self._path):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self._name) from None
            part.rename(self._path)
        finally:
            part.unlink(missing_ok=True)

    def asked(self) -> R | None:
        """What is asked and not answered yet. What cannot be read, or is not the user's, is removed."""
        if not os.access(self._name, os.F_OK, follow_symlinks=False):  # in each turn of a loop: to open it costs more
            return None
        try:
            with open_regular(self._path, follow=False) as file:
                if os.fstat(file.fileno()).st_uid in (os.geteuid(), 0):
                    request = self._decoder.decode(file.read(MOST_BYTES))
                    if request.id:
                        return request if request.id != self._answered else None
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            pass
        self.remove()
        return None

    def answered(self, request_id: str) -> None:
        """A request has its answer: others may ask. Where it cannot be removed it is not answered again."""
        if request_id:
            self.take_back(request_id)
            self._answered = request_id

    def take_back(self, request_id: str) -> None:
        """Ask no more, if the request there is this one."""
        request = self.asked()
        if request is not None and request.id == request_id:
            self.remove()

    def remove(self) -> None:
        """Remove whatever is asked."""
        with contextlib.suppress(OSError):
            self._path.unlink()
