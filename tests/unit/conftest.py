"""Makes `incident_cases` importable from every unit test, and gives properties the time that they take."""

from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

settings.register_profile("unhurried", deadline=None)  # how long an example takes depends on what else the machine does
settings.load_profile("unhurried")
