"""A real cluster in a box: nodes are network namespaces on a leaf-spine network with the kernel's own routing and ECMP.

Lives here: the network as values (`topology`) and made real (`network`), labs that are up and their removal (`box`,
`janitor`), and real training jobs for them (`workloads/`). May be imported from it: `box.Lab`, `topology.Topology`.
It is the truth called "lab" in DESIGN section 6 (real processes, PyTorch, TCP and routing), and no paper's section.
"""
