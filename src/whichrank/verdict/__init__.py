"""What is reported: one incident for each root cause.

`ledger` opens an incident for a finding, refines it, and ends it; `words` says it to people. Sans-I/O: time is an
argument. `ledger` may be imported from here by `analyzer`, `words` by every screen; it imports the store and the model.
DESIGN section 4 has the fields of an incident.
"""
