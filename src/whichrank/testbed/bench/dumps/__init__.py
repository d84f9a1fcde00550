"""Dumps of the Flight Recorder that are made by a program, and what torch's own reader says of them.

Real dumps with a known culprit are few, so jobs are played through here: their groups, their operations in order, a
host that issues ahead of its device, and a fault. Such results are simulation and reported as that, apart from
recordings. May be imported from here: `cases`, `played`, `compare`.
"""

from __future__ import annotations
