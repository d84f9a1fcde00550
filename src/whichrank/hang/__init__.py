"""Which rank keeps the others waiting, or has ended the job: the questions of DESIGN 5.2, one file each.

`order` asks the questions one after the other, and the first that can answer names the rank: start there; `endings`
does so for jobs that end. `mismatch` and `wrong_data` are about operations that contradict each other, `skews` and
`peers` about ranks that issued too many or too few, `remote` and `rendezvous` about waits outside of operations,
`reasons` about what is behind a culprit. Sans-I/O. May be imported from here by `analyzer`. CCL-D section 4.2 has the
decision tree H1 to H3.
"""
