"""Measures whichrank on real jobs: trials with a known fault, tables of many, costs.

`trial` runs one job of the demo under `whichrank run` and judges the verdict, `campaign` runs many and can be stopped
and continued, `tables` makes what stands in the docs, `overhead_*` measure costs. May be imported from `surface`
only.
"""
