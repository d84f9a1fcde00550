"""At which stage of the training it happened, and what fixing it would buy (DESIGN 5.3 and 5.4).

`layout` says how ranks are arranged; `groups`, `boxes` and `learned` learn that from communicators, `config_file` reads
it, and `agreement` holds the two against each other. `schedules` says in which order those of a pipeline work on
microbatches; `graph` is what a schedule makes of the durations of its blocks, in the order of `levels`: critical path,
slack, halt point; `expected` learns how long each block should take, `straggler` names who put an iteration off.
Implements MegaTrace, section III.C. `what_if` says what fixing something would buy, `why_slow` from that whether ranks
are faulty or work is uneven, as the what-if study of stragglers (OSDI 2025) defines it. Sans-I/O. May be imported from
here by `analyzer`, `verdict`, `server` and `surface`.
"""
