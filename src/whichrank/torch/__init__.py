"""For training code that lets whichrank share out its work: the only part of whichrank that a program calls by itself.

Everything here does what the program would do without, as long as nobody tells anything else: in a process that
whichrank does not watch, in one of which the ring is gone, and while all ranks are well.
"""

from __future__ import annotations

from whichrank.torch.balancer import Balancer
from whichrank.torch.megatron import MegatronBalancer
from whichrank.torch.reorderable import Reorderable

__all__ = ["Balancer", "MegatronBalancer", "Reorderable"]
