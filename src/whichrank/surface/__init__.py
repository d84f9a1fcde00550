"""What the user sees: the command line, live view, report, exports.

`cli` has one file per command, `run` what `whichrank run` does, `watch`, `report`, `export` and `trial` a screen each;
`here` reads the jobs of this node for screens, `find_record` the files that a job left behind; `doctor` holds the
checks of the machine; `origin` helps errors to say where; `leave` makes signals ways out. Nobody inside whichrank
imports from it: dependencies point inwards, and this is the outside. Implements no paper section.
"""
