"""whichrank names the rank that hangs a distributed PyTorch job.

The public API: these names and no others. Each is loaded when it is first used, since `import torch` imports
this package in every process of the environment, and a process that is not watched must not pay for it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whichrank.config import AnalyzerConfig, Config, RunConfig, load_config
    from whichrank.errors import (
        ConfigError,
        FormatError,
        IncompleteDataError,
        SensorError,
        UsageError,
        WhichrankError,
    )
    from whichrank.model.incident import Culprit, Incident, decode_incident, encode_incident
    from whichrank.sensors.backward import tokens
    from whichrank.sensors.phase import phase
    from whichrank.verdict.words.text import headline, paragraph

__version__ = "0.1.0"

__all__ = [
    "AnalyzerConfig",
    "Config",
    "ConfigError",
    "Culprit",
    "FormatError",
    "Incident",
    "IncompleteDataError",
    "RunConfig",
    "SensorError",
    "UsageError",
    "WhichrankError",
    "__version__",
    "decode_incident",
    "encode_incident",
    "headline",
    "load_config",
    "paragraph",
    "phase",
    "tokens",
]

_HOME = {
    **dict.fromkeys(("AnalyzerConfig", "Config", "RunConfig", "load_config"), "whichrank.config"),
    **dict.fromkeys(
        ("ConfigError", "FormatError", "IncompleteDataError", "SensorError", "UsageError", "WhichrankError"),
        "whichrank.errors",
    ),
    **dict.fromkeys(("Culprit", "Incident", "decode_incident", "encode_incident"), "whichrank.model.incident"),
    **dict.fromkeys(("headline", "paragraph"), "whichrank.verdict.words.text"),
    "phase": "whichrank.sensors.phase",
    "tokens": "whichrank.sensors.backward",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'whichrank' has no attribute '{name}'")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
