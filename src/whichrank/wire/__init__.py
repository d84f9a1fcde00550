"""How batches travel from agents to the analyzer, and replies back.

`address` is where an analyzer listens; `envelope` turns batches into bytes and refuses what it does not know;
`transport` says what both ends of a transport do; `packed` makes records small while nobody takes them; `zmq_transport`
is ZeroMQ over `ipc://` or `tcp://`, `inprocess` a pair of queues for tests, replay and simulation. Each may be imported
from here by `agent`, `testbed` and `surface`; it imports the model alone. C4's agents and master (section 3.1) talk
over this.
"""
