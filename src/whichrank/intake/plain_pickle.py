"""Pickles of plain values: dicts, lists, tuples, texts, numbers. Every global is refused, so nothing can be run.

The unpickler in C is used, with the two doors shut through which a pickle reaches code: names of globals (also by the
extension registry) and persistent ids. A few bytes can still make it ask for a lot of memory (a memo slot of a high
number), so files of others are read in processes that have a limit; see `workers`.
"""

from __future__ import annotations

import io
import pickle
from typing import Any, Final, NoReturn

from whichrank.errors import FormatError

BUFFER_BYTES: Final = 1 << 16


class _Plain(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        raise pickle.UnpicklingError(f"it asks for {module_name[:60]}.{global_name[:60]}, and code is never run")

    def persistent_load(self, _pid: Any, /) -> NoReturn:
        raise pickle.UnpicklingError("it refers to objects outside of it")


def load_plain(data: bytes) -> Any:
    """The value in a pickle.

    Raises:
        FormatError: It is cut, damaged, asks for a global, or for more memory than there is.
    """
    try:
        # What can be looked into ahead is read three times as fast: else each piece is asked for by a call.
        return _Plain(io.BufferedReader(io.BytesIO(data), BUFFER_BYTES)).load()
    except EOFError as error:
        raise FormatError("the pickle is cut") from error
    except pickle.UnpicklingError as error:
        what = "the pickle is cut" if "truncated" in str(error) else f"the pickle cannot be read: {error}"
        raise FormatError(what) from error
    except MemoryError as error:
        raise FormatError("the pickle asks for more memory than a dump needs") from error
    except Exception as error:  # the unpickler promises no type of error for damaged bytes
        raise FormatError(f"the pickle is damaged ({type(error).__name__})") from error
