"""The loop around an analyzer: agents in, commands out, incidents to whoever asked for them.

Live (`loop`), from a tape (`taped`, `replay`) and from recordings that others made (`analyze`); the agent of this node
as a process; and the files of a run, which screens read: `incidents_file`, `times_file`, `record`. It may be imported
by `surface` only, and makes no screen itself: what is to be said goes to the console that it is given.
"""
