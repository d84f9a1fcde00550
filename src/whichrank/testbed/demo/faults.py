"""The catalogue of faults: what can go wrong in the demo job, what the right verdict is, and what was really seen.

A fault is a test only if it has its effect, so each variant says what was observed when it was run for real (torch
2.13, Gloo on CPU, 8 ranks). ``hang``: ranks wait for ever. ``abort``: Gloo ends a process, not always the faulty
one. ``hang-or-abort``: one or the other, depending on the two operations that meet. ``death``: the victim itself
ends. ``skew``: nothing hangs, the numbers are wrong. ``pause``: all goes on by itself after a while. ``none``: all
is well.
"""

from __future__ import annotations

from whichrank.testbed.demo.fault import (
    EXITED,
    INCONSISTENT,
    NOT_ENTERED,
    STOPPED_ANYWHERE,
    STOPPED_INSIDE,
    Fault,
    Variant,
)

_IN_USER_CODE = ("in user code",)
_STANDS = "The others finish what does not need the rank and then stand still until the group timeout."
_NO_TRACE = "Training goes on for all ranks with wrong numbers; nothing hangs and nothing is reported."

_OUTSIDE = (
    Fault(
        "stop", "SIGSTOP from outside while the rank is between two operations.", "outside", "linger",
        (Variant("between-ops", "hang", f"State T, in no operation. {_STANDS}"),),
        causes=STOPPED_ANYWHERE, reasons=("stopped",), hard=True,
    ),
    Fault(
        "stop-in-op", "SIGSTOP right after the rank has entered an all-reduce.", "in-program", "op",
        (Variant("all-reduce", "hang", "State T with the operation issued; its peers stay inside that operation.",
                 sites="all_reduce"),),
        do="stop-in-op", causes=STOPPED_INSIDE, reasons=("stopped",), hard=True,
    ),
    Fault(
        "kill", "SIGKILL from outside at any moment.", "outside", "signal",
        (Variant("sigkill", "death", "Its direct peers raise 'Connection reset by peer' or 'closed by peer' after"
                 " 20-120 ms; the launcher ends the others."),),
        causes=EXITED, reasons=("signal",), hard=True,
    ),
    Fault(
        "oom-kill", "The kernel's OOM killer, in a memory cgroup into which the rank was moved.", "outside", "memory",
        (Variant("cgroup", "death", "The kernel kills it (SIGKILL) about 0.1 s after it starts to allocate; oom_kill of"
                 " its cgroup is 1. Where cgroups are not writable the variant says 'simulated'."),),
        do="oom-kill", causes=EXITED, reasons=("out of memory",), hard=True,
    ),
    Fault(
        "stop-and-continue", "SIGSTOP, and SIGCONT eight seconds later.", "outside", "linger",
        (Variant("eight-seconds", "pause", "All ranks stand still for eight seconds, then training goes on."),),
        causes=STOPPED_ANYWHERE, reasons=("stopped",), hard=True, recovers=True,
    ),
)  # fmt: skip

_SKIPPED_OR_REPEATED = {
    "skip-op": "With unequal buckets the rank itself or a neighbour aborts within 20 ms; with another kind of"
               " collective the group hangs.",
    "repeat-op": "With unequal buckets a neighbour or the rank itself aborts within 20 ms; with another kind of"
                 " collective the group hangs; where the doubled one is the last of an iteration it may hang later.",
}  # fmt: skip


def _one_too_few_or_many(name: str, description: str) -> Fault:
    return Fault(
        name, description, "in-program", "op",
        (
            Variant("different", "hang-or-abort", _SKIPPED_OR_REPEATED[name], sites="different-next", needs="mixed"),
            Variant("equal", "skew", "The group is one operation apart and goes on with wrong numbers, nine iterations,"
                    " until the next world-level log makes it abort or hang.",
                    hard=False, sites="equal-silent", needs="mixed"),
            Variant("equal-cycle", "hang", "One operation apart in a group on which the pipeline waits twice: all"
                    " stand still within two iterations, in a cycle of waits, with equal signatures.",
                    causes=("inconsistent", "deadlock"), sites="equal-cycle", needs="tp-behind-pp"),
        ),
        do=name, causes=INCONSISTENT, hard=True,
    )  # fmt: skip


_CALLS = (
    _one_too_few_or_many("skip-op", "Leaves one collective out."),
    _one_too_few_or_many("repeat-op", "Issues one collective twice."),
    Fault(
        "wrong-shape", "Enters an all-reduce with another number of elements.", "in-program", "op",
        (
            Variant("larger", "abort", "A healthy neighbour gets SIGABRT (gloo::EnforceNotMet) within 20 ms; the rank"
                    " itself raises 'Connection reset by peer'.", sites="all_reduce"),
            Variant("smaller", "abort", "The rank itself gets SIGABRT (gloo::EnforceNotMet) within 20 ms; its peers"
                    " raise.", sites="all_reduce"),
        ),
        do="wrong-shape", causes=INCONSISTENT, hard=True,
    ),
    Fault(
        "wrong-dtype", "Enters an all-reduce with another element type.", "in-program", "op",
        (
            Variant("same-width", "skew", f"int32 for float32. {_NO_TRACE}", sites="all_reduce"),
            Variant("wider", "abort", "float64 for float32 is a larger message: a healthy neighbour gets SIGABRT.",
                    sites="all_reduce"),
        ),
        do="wrong-dtype", causes=INCONSISTENT, hard=True,
    ),
    Fault(
        "wrong-op", "Enters another collective than its peers.", "in-program", "op",
        (
            Variant("broadcast", "hang", f"Gloo's messages do not match; no error. {_STANDS}", sites="all_reduce"),
            Variant("all-gather", "hang", f"Gloo's messages do not match; no error. {_STANDS}", sites="all_reduce"),
        ),
        do="wrong-op", causes=INCONSISTENT, hard=True,
    ),
    Fault(
        "wrong-reduce-op", "Reduces with MAX where the others sum.", "in-program", "op",
        (Variant("max", "skew", _NO_TRACE, sites="all_reduce"),),
        do="wrong-reduce-op", causes=INCONSISTENT, hard=True,
    ),
    Fault(
        "wrong-root", "Names another root in a broadcast.", "in-program", "op",
        (Variant("neighbour", "hang", "Two roots, or none, or a tree with a missing branch: the rank and some of its"
                 " group stand inside the broadcast; others may leave it and wait in the next operation.",
                 sites="broadcast"),),
        do="wrong-root", causes=INCONSISTENT, hard=True,
    ),
    Fault(
        "wrong-order", "Enters two communicators in the opposite order of its peers.", "in-program", "turn",
        (Variant("one-rank", "hang", "The rank is inside the world's all-reduce, its local group inside the group's:"
                 " a cycle of two. It comes with the world-level log of an iteration.", needs="mixed"),),
        do="wrong-order", causes=("deadlock", "inconsistent"), hard=True,
    ),
)  # fmt: skip

_PROCESS = (
    Fault(
        "exit", "The rank ends itself in the middle of an iteration.", "in-program", "op",
        (
            Variant("os-exit-3", "death", "Gone at once with exit code 3; its peers raise after about 20 ms."),
            Variant("sys-exit-0", "death", "Its peers raise 0.1-1.3 s later and fail first in the launcher's report;"
                    " the culprit's exit code is 0."),
        ),
        do="exit", causes=EXITED, hard=True,
    ),
    Fault(
        "raise", "The rank raises; its peers see their operations fail.", "in-program", "op",
        (
            Variant("peers-reraise", "death", "Its peers raise 'Connection closed by peer' 0.1-0.4 s later; the"
                    " processes end in any order."),
            Variant("peers-exit", "death", "Its peers end with os._exit(1) about 0.2 s later, before the culprit has"
                    " left its interpreter: all of them are gone first."),
        ),
        do="raise", causes=EXITED, reasons=("exception",), hard=True,
    ),
    Fault(
        "sleep", "time.sleep in the training loop, for ever.", "in-program", "op",
        (Variant("python", "hang", _STANDS),), do="sleep", causes=NOT_ENTERED, reasons=_IN_USER_CODE,
    ),
    Fault(
        "sleep-gil", "Sleeps in C with the GIL held.", "in-program", "op",
        (Variant("pydll", "hang", f"No Python thread of the rank runs any more. {_STANDS}"),),
        do="sleep-gil", causes=NOT_ENTERED, reasons=("GIL held",),
    ),
    Fault(
        "spin", "Computes in Python for ever.", "in-program", "op",
        (Variant("python", "hang", f"One core at 100 %. {_STANDS}"),),
        do="spin", causes=NOT_ENTERED, reasons=_IN_USER_CODE,
    ),
    Fault(
        "never-init", "Never reaches init_process_group.", "in-program", "hello",
        (Variant("sleeping", "hang", "The others stay in init_process_group; no communicator exists anywhere."),),
        causes=NOT_ENTERED, reasons=_IN_USER_CODE,
    ),
)  # fmt: skip

_HEALTHY = (
    Fault("none", "An undisturbed job.", "healthy", "never",
          (Variant("plain", "none", "100-200 ms per iteration."),)),
    Fault("jitter", "Every rank sleeps 0-50 ms before each iteration.", "healthy", "hello",
          (Variant("50-ms", "none", "About 1.25 times the iteration time."),), settings={"jitter_ms": 50}),
    Fault("late-checkpoint", "Rank 0 writes files with fsync while the others wait.", "healthy", "errand",
          (
              Variant("next-op", "pause", "The others wait in their next operation, for the time that was asked for."),
              Variant("barrier", "pause", "All others wait in a world barrier, for the time that was asked for."),
          ), reasons=("writing a checkpoint",), recovers=True),
    Fault("rank0-eval", "Rank 0 evaluates alone for three seconds.", "healthy", "errand",
          (Variant("3-s", "pause", "The others wait three seconds, then all goes on."),), recovers=True),
    Fault("gc", "Every rank runs a large garbage collection now and then.", "healthy", "hello",
          (Variant("one-in-ten", "none", "Pauses of 0.4-1.3 s on one rank or another."),), settings={"gc_every": 10}),
    Fault("first-compile", "The first iteration compiles, for another time on each rank.", "healthy", "hello",
          (Variant("byte-compiler", "pause", "Real CPU work of 2-6 s by Python's compiler. torch.compile took"
                   " 106 s for 8 ranks on 2 busy cores with an empty cache each, so it is not used."),),
          recovers=True),
    Fault("suspend-all", "All ranks are stopped for some seconds, then continue.", "healthy", "all",
          (Variant("few-seconds", "pause", "All in state T within 1 ms for 3-5 s, then training goes on."),),
          causes=("suspended", "none"), reasons=("stopped",), recovers=True),
    Fault("early-exit", "One rank ends with exit code 0 while the others still work, without communication.",
          "healthy", "errand", (Variant("no-tail", "none", "The job ends with 0, six seconds after its first rank."),)),
    Fault("posted-irecv", "A receive is posted twenty iterations before it is satisfied.", "healthy", "errand",
          (Variant("20-iterations", "none", "It stays incomplete for 20 iterations and delays nobody."),)),
)  # fmt: skip

CATALOGUE: dict[str, Fault] = {fault.name: fault for fault in (*_OUTSIDE, *_PROCESS, *_CALLS, *_HEALTHY)}
