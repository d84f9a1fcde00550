"""What the spread of values is told by."""

from __future__ import annotations

from typing import Final

SIGMA_PER_MAD: Final = 1.4826
"""Standard deviations in one median absolute deviation, of normal values."""
