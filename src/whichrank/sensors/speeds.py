"""How fast a device computes and copies memory, and how fast messages come over a link.

Measured for a while and not for so much work, so a slow rank takes little longer than the others: what does not fit is
not measured. Implements the benchmarks of Greyhound, section 4.3, for ranks at the gate and for a check before a job.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from whichrank.model.codes import MULTIPLIED

WHILE_S: Final = 0.15
"""For so long one thing is measured: one and a half periods of a CPU limit, and many turns of the scheduler."""
CPU_SIDE: Final = 256
"""Of the matrices that a CPU multiplies: fits into its cache, milliseconds each."""
GPU_SIDE: Final = 4096
COPIED: Final = 1 << 24
"""Floats that are copied to measure memory: 64 MiB, more than a cache holds."""
LONGEST_S: Final = 0.5
"""After which no further type of numbers is tried: a rank has some hundredths of a CPU."""
PREPARED_S: Final = 1.5
"""In which memory is prepared: less of it would fit into a cache, and be copied faster. Many ranks may share a CPU."""
PIECE: Final = 1 << 20
"""Floats that are prepared at once."""
LEAST_PACED: Final = 1 << 16
"""Bytes that must have come in for their pace to mean anything."""
TAG: Final = 0x7761
"""Of messages between two processes that test their link: no program is likely to use it."""


def multiplied(torch: Any, device: Any, repeats: int, refuse: Callable[[], None]) -> list[float]:
    """Seconds that one product of square matrices takes: `repeats` values of each of MULTIPLIED.

    0 where the device has no such type, only emulates it, or is so slow that other types have taken all the time.

    Args:
        torch: The module.
        device: That computes.
        repeats: Of each type.
        refuse: Called again and again; raises if nothing more is to be measured.
    """
    side = side_of(device)
    times: list[float] = []
    used = time.thread_time if device.type == "cpu" else time.perf_counter  # it may be kept from its CPU
    began = time.perf_counter()
    for name in MULTIPLIED:
        if time.perf_counter() - began > LONGEST_S * (1 + repeats):
            times += [0.0] * repeats
            continue
        try:
            factor = torch.full((side, side), 0.5, dtype=getattr(torch, name), device=device)
            product = torch.empty_like(factor)
            multiply = _until_done(torch, device, partial(torch.mm, factor, factor, out=product))
            multiply()  # the first one makes what the others only use
            before = used()
            multiply()
            is_emulated = used() - before > WHILE_S / 2
            times += [0.0 if is_emulated else _each(multiply, refuse) for _ in range(repeats)]
        except RuntimeError:  # this device has none of that type
            times += [0.0] * repeats
    return times


def side_of(device: Any) -> int:
    """Of the matrices that a device multiplies."""
    return CPU_SIDE if device.type == "cpu" else GPU_SIDE


def copied(torch: Any, device: Any, repeats: int, refuse: Callable[[], None]) -> list[float]:
    """Seconds that a copy of COPIED floats takes, `repeats` values; of a slow rank told by a part of them.

    Args:
        torch: The module.
        device: Whose memory it is.
        repeats: Values.
        refuse: Called again and again; raises if nothing more is to be measured.
    """
    source = torch.empty(COPIED, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    began, ready = time.perf_counter(), 0
    while ready < COPIED and time.perf_counter() - began < PREPARED_S:
        refuse()
        source[ready : ready + PIECE] = 0.0
        target[ready : ready + PIECE] = 0.0
        ready += PIECE
    copy = _until_done(torch, device, partial(target[:ready].copy_, source[:ready]))
    return [COPIED / ready * _each(copy, refuse) for _ in range(repeats)]


def _until_done(torch: Any, device: Any, launch: Callable[[], object]) -> Callable[[], None]:
    """Launch it, and wait until the device has done it."""

    def call() -> None:
        launch()
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return call


def _each(call: Callable[[], None], refuse: Callable[[], None]) -> float:
    """Seconds that a call takes, over as many as fit into WHILE_S."""
    began, count = time.perf_counter(), 0
    while (took := time.perf_counter() - began) < WHILE_S:
        refuse()
        call()
        count += 1
    return took / count


def send_as_told(backend: Any, peer: int, word: Any, room: Any, sizes: list[int], repeats: int) -> None:
    """Send what the peer asks for, until it asks no more. Nothing is measured here."""
    backend.recv([word], peer, TAG).wait()
    backend.send([word], peer, TAG).wait()
    for size in [size for size in sizes for _ in range(repeats)]:
        backend.recv([word], peer, TAG).wait()
        if not int(word[0]):
            break
        backend.send([room[:size]], peer, TAG).wait()


def receive_for_a_while(
    backend: Any, peer: int, word: Any, room: Any, sizes: list[int], repeats: int, lasts_s: float
) -> list[float]:
    """Ask for messages, the small ones first, while they fit into `lasts_s`: a slow link takes no longer than others.

    Time counts once the peer is there: it may still have to do with a slow link, in the pass before.
    """
    backend.send([word], peer, TAG).wait()
    backend.recv([word], peer, TAG).wait()
    began, times = time.perf_counter(), list[float]()
    for size in [size for size in sizes for _ in range(repeats)]:
        asked = time.perf_counter()
        of_latest = times[(len(times) - 1) // repeats * repeats :]
        byte_s = min(of_latest) / sizes[(len(times) - 1) // repeats] if times else 0.0
        is_enough = asked + size * byte_s - began > lasts_s
        word[0] = not is_enough
        backend.send([word], peer, TAG).wait()
        if is_enough:
            break
        backend.recv([room[:size]], peer, TAG).wait()
        times.append(time.perf_counter() - asked)
    return times


def usual_pace(before: list[tuple[int, int]], after: list[tuple[int, int]]) -> float:
    """Bytes per second at which the middle byte came in, between two readings of all classes; 0: not known.

    It is not of few bytes, nor where a sum is less than before: a connection has taken the place of another one.
    """
    both = zip(before, after, strict=True)
    came = [(now - then, ns - then_ns) for (then, then_ns), (now, ns) in both]
    total, so_far = sum(size for size, _ in came), 0
    if total < LEAST_PACED or min(min(one) for one in came) < 0:
        return 0.0
    for size, ns in came:
        so_far += size
        if 2 * so_far >= total:
            return size * 1e9 / max(1, ns)
    return 0.0
