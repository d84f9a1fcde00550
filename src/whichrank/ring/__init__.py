"""Readers of the shared-memory ring (DESIGN section 3, "Ring").

`layout` holds the NumPy view of `native/include/whichrank/ring.h` (a test compares both), `reader` reads one ring file
and takes consistent copies, `folder` finds the rings of a job and removes those whose process is gone. Read-only by
construction; a ring that is cut short, foreign or newer is refused with one sentence. Imports: NumPy and the standard
library only.
"""
