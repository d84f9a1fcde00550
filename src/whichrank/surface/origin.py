"""Where the value of an option came from: whoever set a variable long ago looks for it in vain on the command line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import click
from click.core import ParameterSource

from whichrank.errors import UsageError


@contextlib.contextmanager
def named_by_origin(parameter: str) -> Iterator[None]:
    """Let an error about a parameter of the running command name the variable, if its value came from one.

    Raises:
        UsageError: As raised inside, with the variable.
    """
    try:
        yield
    except UsageError as error:
        if click.get_current_context().get_parameter_source(parameter) is not ParameterSource.ENVIRONMENT:
            raise
        variable = f"WHICHRANK_{parameter.upper()}"
        mend = f"unset {variable}; {error.mend}"
        raise UsageError(f"{variable}: {error.what}", where="the environment", mend=mend) from error
