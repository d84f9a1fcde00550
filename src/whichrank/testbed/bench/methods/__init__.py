"""What others do to find the rank that hangs or slows a job, each as its paper or source describes it.

All see the same: the telemetry of a recorded run. One file per method; `telemetry` keeps what they look at, `score`
compares what they say with the truth. Where a source leaves something open, the file says what was decided, and the
page of the method in docs/explain/methods says why.
"""
