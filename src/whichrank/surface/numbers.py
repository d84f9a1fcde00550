"""Numbers on the command line; a value that is none is refused with what is wanted, and not with the name of a type."""

from __future__ import annotations

from typing import Any

import click


class WholeNumber(click.IntRange):
    """A whole number in a range."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number, or an error that says which ones there are."""
        try:
            number: int = super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"'{value}' is no whole number {_range(self.min, self.max)}.", param, ctx)
        return number


class Seconds(click.FloatRange):
    """Seconds, as many as the range allows."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The seconds, or an error that says how many there may be."""
        try:
            seconds: float = super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"'{value}' is no number of seconds {_range(self.min, self.max)}.", param, ctx)
        return seconds


def _range(least: float | None, most: float | None) -> str:
    return f"from {least:g} on" if most is None else f"from {least:g} to {most:g}"
