"""A training job that is computed instead of run, at any scale: for scale, never as the only proof of accuracy.

`program` says what the ranks of a pipeline rank do in an iteration, `run` computes when they do it, with the `noise` of
the lab. `communicators`, `clocks` and `states` are what agents see beside that; `telemetry` makes their batches.
`faults` are done to a job; a `trial` lets an analyzer listen, and scores it. All is arrays over ranks. May be imported
from here by `bench` and the command line. MegaTrace, section V.B; CCL-D, section 6.
"""
