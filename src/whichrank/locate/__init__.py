"""Who, where, which stage? Pure functions over a `Picture`.

`waitgraph` follows who waits for whom to the ranks that wait for nobody; `signatures` compares what members of a round
issued and finds the one that deviates; `deaths` tells the rank that died from those that followed. Imports `model`
only. Goes on from CCL-D section 4.2.2 as DESIGN 5.2 says.
"""
