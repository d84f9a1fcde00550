"""Which rank keeps the others waiting, or has ended the job: the questions of DESIGN 5.2, one file each.

`order` asks the questions one after the other, and the first that can answer names the rank: start there; `endings`
does so for jobs that end. `mismatch` and `rounds` are about operations that contradict each other, `remote` and
`rendezvous` about waits outside of operations, `reasons` about what is behind a culprit, `history` and `peers` about
what ranks have issued. Sans-I/O. May be imported from here by `analyzer`. CCL-D section 4.2 has the decision tree H1
to H3.
"""
