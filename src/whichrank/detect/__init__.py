"""Is something wrong? Sans-I/O detectors: they are fed values and given the time.

`hang` says when blocked operations make a suspicion, a notice or an alert; `period` finds the iteration in the
sequence of operations and every departure from it; `own_times` measures iterations from step to step, and says where
their time goes; `losses` and `lately` hold what ranks lose against each other;
`change_points` finds new levels in many series as their values come, by `run_lengths` and then
`level_shift`. Imports `model` only; no socket, file, thread or sleep, so that the same code runs live, in replay and
in the simulator. Implements CCL-D section 4.2.1 (hang part), DESIGN 5.2 and 5.3 (period), Greyhound section 4.2.
"""
