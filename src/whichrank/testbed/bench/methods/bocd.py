"""Bayesian online change-point detection (Adams and MacKay, 2007) with a Student-t predictive, as Greyhound uses it."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

HAZARD: Final = 1 / 250
LIKELY: Final = 0.9
"""Greyhound's threshold."""
YOUNG: Final = 3
"""Run lengths that count as a change: the posterior of zero alone is the hazard by construction."""
_MOST: Final = 512
_ALPHA, _BETA, _KAPPA = 1.0, 1e-4, 1.0


class Bocd:
    """Is fed values of about 1, one after the other."""

    def __init__(self) -> None:
        self._log_p = np.zeros(1)
        self._mean: np.ndarray | None = None
        self._kappa = self._alpha = self._beta = np.zeros(0)

    def change(self, value: float) -> bool:
        """Whether a new run has most likely begun within the last values."""
        if self._mean is None:
            self._mean = np.array([value])
            self._kappa, self._alpha, self._beta = (np.array([x]) for x in (_KAPPA, _ALPHA, _BETA))
        log_pred = _student(value, self._mean, self._kappa, self._alpha, self._beta)
        grown = self._log_p + log_pred + math.log1p(-HAZARD)
        begun = np.logaddexp.reduce(self._log_p + log_pred) + math.log(HAZARD)
        self._log_p = np.concatenate(([begun], grown))[:_MOST]
        self._log_p -= np.logaddexp.reduce(self._log_p)
        first = np.array([value])
        mean = (self._kappa * self._mean + value) / (self._kappa + 1)
        beta = self._beta + self._kappa * (value - self._mean) ** 2 / (2 * (self._kappa + 1))
        self._mean = np.concatenate((first, mean))[:_MOST]
        self._beta = np.concatenate(([_BETA], beta))[:_MOST]
        self._kappa = np.concatenate(([_KAPPA], self._kappa + 1))[:_MOST]
        self._alpha = np.concatenate(([_ALPHA], self._alpha + 0.5))[:_MOST]
        young = np.exp(self._log_p[: YOUNG + 1]).sum()
        return bool(len(self._log_p) > 2 * YOUNG and young > LIKELY)


def _student(value: float, mean: np.ndarray, kappa: np.ndarray, alpha: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """Log density of the predictive."""
    scale = beta * (kappa + 1) / (alpha * kappa)
    degrees = 2 * alpha
    norm = np.array([math.lgamma((d + 1) / 2) - math.lgamma(d / 2) for d in degrees])
    norm -= 0.5 * np.log(degrees * np.pi * scale)
    density: np.ndarray = norm - (degrees + 1) / 2 * np.log1p((value - mean) ** 2 / (degrees * scale))
    return density
