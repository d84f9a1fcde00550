"""At which stage of the training it happened, and what fixing it would buy (DESIGN 5.3 and 5.4).

`layout` says how ranks are arranged; `groups`, `boxes` and `learned` learn that from communicators, `config_file` reads
it, and `agreement` holds the two against each other. `schedules` says in which order those of a pipeline work on
microbatches. Implements MegaTrace, section III.C. Sans-I/O. May be imported from here by `analyzer`, `verdict` and
`surface`.
"""
