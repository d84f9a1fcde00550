"""What takes longer than it should, live: rank, link or nobody (DESIGN 5.3).

`slowness` is the front: it keeps the latest iterations and asks who is slow, and whether that delays anybody.
`latest_ops` what can be gone through again, `node_usage` what nodes give to ranks, `traffic` and `link_watch` what goes
from rank to rank, `loader_looks` whether a rank waits for data, `reasons` why a rank is slow, `words` the findings,
`told_lately` what was told and when.
"""
