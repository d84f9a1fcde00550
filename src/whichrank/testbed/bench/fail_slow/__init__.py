"""Tables 3 and 4 of Greyhound again: which method finds that a job has become slow, or well again?

`series` is what all parts share; `simulated`, `lab_runs` and `annotated` give series of three sources, which are never
mixed in one figure; `methods` are those that are compared; `score` holds what they find against what was done; `table`
prints it. Implements Greyhound sections 4.2 and 7.2. May be imported from `surface` only.
"""
