"""What takes longer than it should, live: rank, link or nobody (DESIGN 5.3).

`slowness` is the front: it keeps the latest iterations and asks who is slow, and whether that delays anybody.
`latest_ops` has what can be gone through again, `node_usage` what nodes give to ranks, `link_watch` the slow links,
`directions` which passes these hold up, `loader_share` whether a rank waits for data, `reasons` why a rank is slow,
`effect` whether it costs enough, `parts` where in its iterations, `findings` what is said of it, `steady_findings` what
has lasted; `fed_rows` makes rows for them of what the store has taken. Sans-I/O. May be imported from here by
`analyzer`. CCL-D section 4.2, Greyhound section 4.
"""
