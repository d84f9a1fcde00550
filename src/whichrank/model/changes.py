"""Moments from which iterations of a job took longer, or less long, than before."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct


class LevelChange(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of them."""

    at: Annotated[datetime, Meta(tz=True)]
    """When its first iteration began, UTC."""
    iteration: Annotated[int, Meta(ge=0)]
    """The first one."""
    before_s: Annotated[float, Meta(gt=0)]
    """What an iteration took before."""
    after_s: Annotated[float, Meta(gt=0)]
    """And what it takes from then on, as was known when it was found."""
