"""The screens of `whichrank demo` and `whichrank lab run`: one trial, its verdict, the truth, and whether they agree.

`show` runs a trial as a command, `words` has what is said to people. Only the commands import from here.
"""
