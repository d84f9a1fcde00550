"""What whichrank takes for a job of up to 65,536 ranks: to locate a hang, to take in telemetry, to simulate.

`jobs` says which jobs, `location`, `ingest` (with `sender` and `receiver`) and `simulation` measure one part each,
`fits` is what grows with the size, and `parts` prints them. All is the real code on simulated telemetry.
May be imported from here by the command line. CCL-D, section 6.3; MegaTrace, figure 8.
"""
