"""Logs of hung jobs that are made by a program: version of torch × prefix × fault × damage, each with a known culprit.

Their words are those of `intake.grammar`, so what is not in that table is not in them: results are simulation and
reported as that. May be imported from here: `made`, `score`.
"""

from __future__ import annotations
