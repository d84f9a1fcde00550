"""Recordings that others made, turned into what our own agents say.

A dump, a trace or a log becomes a `Recording`: `Batch`es of the same columns as live, so that one and the same code
detects and locates. Nothing is judged here; what a file does not say stays unknown. Formats are known by content, never
by name, and nothing that a file says is believed: lengths are bounded, unpicklers forbid every global.
May be imported from here by `surface` and `testbed`: `read`, `Recording`, `Note`.
"""

from __future__ import annotations
