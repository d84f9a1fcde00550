"""One per node: finds rings, reads them, watches the processes behind them, and reports to the analyzer.

`agent` is the loop, `rank` one ring with its process, `snapshot` the columns that leave the node, `inferred` the waits
that no sensor can mark, `processes` what /proc says, `usage` what a node gives to a rank, `cgroups` its control groups,
`memory` who was killed for it, `tcp` and `frames` what moves, `outbox` what must not be lost, `stacks` py-spy. May be
imported from here by `testbed` and `surface`: `agent.Agent` and `stacks`. No torch and no rich: 50 MiB is all it
may take.
It plays the agent of C4 (section 3.1) and the collector of CCL-D (section 4.1).
"""
