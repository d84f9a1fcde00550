"""`whichrank bench mitigate`: what acting on something slow gains, in real jobs.

`job` is the program that trains, `runs` starts it under `whichrank run` and makes it slow. `split`, `shares`, `places`
and `events` are the figures and tables of Greyhound (sections 7.3 to 7.5), `histories` replays durations of slowness
against who knows their end. A microbatch of the program takes its time asleep, since there is no device here; all else
is real.
"""
