"""What `whichrank run` does: start the job as a plain child, watch it, say what was found, end as the job ended.

`session` is the order of things, `job` the child and the signals, `sender` who sent one, `observation` the agent of
this node and the analyzer, `reach` whether anybody listens where `--join` says, `console` the terminal, `stacks_of_job`
what `whichrank stacks` reads. May be imported from here by `surface` only. One rule above all: whatever of ours fails,
the job goes on.
"""
