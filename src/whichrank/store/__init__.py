"""All that was received of a job, once: ranks, operations, waits, iterations, connections, processes, as columns.

`store` is fed by batches of many agents, hands them to the columns beside it, makes the picture of a moment, and has
the length of an iteration (by `steps`, else by the period in `sequences` and by `op_rates`); `rounds` has what members
issued in each round, `paths` connections and probes; `admission` keeps out batches of another job. Sans-I/O: time is an
argument. May be imported from here by `hang`, `slow`, `transport`, `verdict`, `analyzer`, `testbed` and the screens;
it imports the model, of `detect` what makes a period and what waits usually are, of `locate` what a socket's numbers
mean.
"""
