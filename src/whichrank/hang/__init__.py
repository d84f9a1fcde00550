"""Which rank keeps the others waiting, or has ended the job: the questions of DESIGN 5.2, one file each.

`order` asks the questions one after the other, and each decides whether it can name a rank: mostly `sinks`, about ranks
that others wait for and that wait for nobody, with `reasons` for what is behind it; `endings` is the order for jobs
that end. `mismatch` and `wrong_data` are about operations that contradict each other, `skews` and `peers` about ranks
that issued too many or too few, `remote` and `rendezvous` about waits outside of operations. Sans-I/O. May be imported
from here by `analyzer`. CCL-D section 4.2 has the decision tree H1 to H3.
"""
