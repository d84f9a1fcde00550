"""Makes the writers of rings and ranks of `tests/unit` importable here, and signals what they are on a terminal."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

# A shell ignores these for what it starts in the background (or nohup does), and so would every job started here.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
