"""The tables and plots of MegaTrace's evaluation (paper, section V) on simulated jobs.

All methods of others are our own readings of what papers describe, and not the code of their authors. Each module says
what was decided where a paper is silent. Nothing of the lab and of recordings is mixed in.
"""
