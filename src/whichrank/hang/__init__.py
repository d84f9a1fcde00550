"""What keeps the ranks that wait, or has ended the job: the questions of DESIGN 5.2, and what they rest on.

`case` asks them in their order; `endings` is about jobs that end, `mismatch` and `rounds` about operations that
contradict each other, `remote` and `rendezvous` about waits outside of operations, `reasons` about what is behind a
culprit, `history` and `peers` about what ranks have issued. Sans-I/O. May be imported from here by `analyzer`.
CCL-D section 4.2 has the decision tree H1 to H3.
"""
