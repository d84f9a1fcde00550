"""Real jobs to break, and scores of what is said of them: `demo` on one machine, `lab` on a cluster in a box, `bench`.

`demo` has the jobs, the faults and the injector; `lab` makes nodes of network namespaces; `bench` runs trials, judges
verdicts against the truth, and measures what watching costs. Methods of others that it scores are in `bench/methods`.
Only the command line may import from here; all other rooms may be imported.
"""
