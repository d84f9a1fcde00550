"""What `whichrank watch` shows: the jobs of this node, read straight from their rings.

`frame` holds the values of one moment (also what `--json` prints), `node` finds the jobs, `job` reads one of them,
`ranks` and `communicators` turn rings into rows, `words` names things, `tables` and `view` draw a frame, `screen` is
the terminal. It needs no agent and no analyzer and sends nothing: what it says of guilt is what `incidents.jsonl` says.
May be imported from here by `surface` only.
"""
