"""All that was received of a job, once: ranks, operations, waits, connections, processes, as columns.

`state` is fed by batches of many agents and makes the picture of a moment; `admission` keeps out batches of another
job; `paths` has connections and probes, `interruption` the signals that ask the job to end, `growing` columns that
grow. Sans-I/O: time is an argument. May be imported from here by `hang`, `slow`, `transport`, `verdict` and `analyzer`;
it imports the model, and of `locate` what a socket's numbers mean.
"""
