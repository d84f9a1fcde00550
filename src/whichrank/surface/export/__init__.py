"""What is known of a job, in formats that other programs open: Perfetto's, JSON and CSV.

May be imported from here by `surface.cli`: `perfetto`, `tables`.
"""

from __future__ import annotations
