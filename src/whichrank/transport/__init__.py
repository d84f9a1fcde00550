"""What goes between nodes, and what does not: reachability of nodes, and transfers by pair of ranks.

`reach` decides which nodes are unreachable, from connections and probes; `traffic` turns what kernels and sensors
counted into transfers of a window. Sans-I/O. May be imported from here by `hang`, `slow` and `analyzer`. C4D section
III.A has the delay matrix that transfers fill.
"""
