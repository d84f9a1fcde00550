"""What is known of a job, in formats that other programs open: Perfetto's, JSON and CSV.

Each format makes bytes piece by piece, so that a large one needs no memory for all of it. May be imported from here by
`surface.cli`: `perfetto`, `tables`, `limit`.
"""

from __future__ import annotations
