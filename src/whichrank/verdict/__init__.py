"""What is reported: one incident for each root cause. Who is at fault is found in `hang` and `slow`, not here.

`policy` has the life of an incident as a table: suspected, notice, alert, and when a notice is withdrawn; `ledger`
opens an incident for a finding, refines it, and ends it; `words` has its sentences. Sans-I/O: time is an argument.
`ledger` may be imported from here by `analyzer`, `words` by every screen; it imports the store, the model,
and of `detect` how urgent a hang is. DESIGN section 4.
"""
