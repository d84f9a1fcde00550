"""A training job that is computed instead of run, at any scale: for scale, never as the only proof of accuracy.

`program` says what the ranks of a pipeline stage do in an iteration, `run` computes when they do it, `telemetry` makes
the batches of their agents of that. All is arrays over the ranks of a stage. May be imported from here by `bench` and
the command line. MegaTrace, section V.B; CCL-D, section 6.
"""
