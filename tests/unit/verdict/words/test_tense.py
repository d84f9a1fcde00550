"""Words of the analyzer, once what they tell of is over."""

from __future__ import annotations

import pytest

from whichrank.verdict.words.tense import past


@pytest.mark.parametrize(
    ("now", "then"),
    [
        ("it has not entered recv #3 on pp, and it is in its own code, in f (/a/is.py:3)",
         "it had not entered recv #3 on pp, and it was in its own code, in f (/a/is.py:3)"),
        ("it entered all_reduce #7 on dp, and its process 12 is stopped",
         "it entered all_reduce #7 on dp, and its process 12 was stopped"),
        ("its main thread sleeps in the kernel while it holds the GIL",
         "its main thread slept in the kernel while it held the GIL"),
        ("it writes files, or its child processes work", "it wrote files, or its child processes worked"),
        ("it waits for something that is no operation", "it waited for something that was no operation"),
        ("it waits for data; it is in next (loader.py:9)", "it waited for data; it was in next (loader.py:9)"),
        ("it is in no operation while others wait, and its process writes",
         "it was in no operation while others waited, and its process wrote"),
        ("it has ended in order, and 3 wait for it in barrier #2 on dp",
         "it had ended in order, and 3 waited for it in barrier #2 on dp"),
        ("it waits in barrier #2 on dp for ranks that have ended in order",
         "it waited in barrier #2 on dp for ranks that had ended in order"),
        ("it has not reached the point where 1 rank waits, and its process is suspended",
         "it had not reached the point where 1 rank waited, and its process was suspended"),
        ("it has not reached the point where 3 ranks wait, and it is in the phase 'eval' that the script marked",
         "it had not reached the point where 3 ranks waited, and it was in the phase 'eval' that the script marked"),
        ("its node is silent for 9 s, and 3 connections to it get no answer",
         "its node was silent for 9 s, and 3 connections to it got no answer"),
        ("the others have completed all_reduce #7", "the others had completed all_reduce #7"),
        ("others wait for it, and its ring was not read", "others waited for it, and its ring was not read"),
        ("its process raised ValueError: it is wrong, others have more",
         "its process raised ValueError: it is wrong, others have more"),
        ("it is ready and without a CPU for 63% of the time; it takes 934 ms of own time in each iteration, 2.51 times "
         "that of the other rank in its position; it makes an iteration take 940 ms instead of 480 ms",
         "it was ready and without a CPU for 63% of the time; it took 934 ms of own time in each iteration, 2.51 times "
         "that of the other rank in its position; it made an iteration take 940 ms instead of 480 ms"),
        ("its control group limits it to 1 core while its peers have 8; it alone makes an iteration take 2 s",
         "its control group limited it to 1 core while its peers had 8; it alone made an iteration take 2 s"),
        ("it and rank 3 make an iteration take 2 s instead of 1 s",
         "it and rank 3 made an iteration take 2 s instead of 1 s"),
        ("its core runs at 1.0 GHz while those of its peers run at 2.0; its garbage collector takes 40% of its time",
         "its core ran at 1.0 GHz while those of its peers ran at 2.0; its garbage collector took 40% of its time"),
        ("it reads 40 MB/s from storage that is slow to answer",
         "it read 40 MB/s from storage that was slow to answer"),
        ("it sends to other nodes at 40 Mbit/s instead of the usual 400 Mbit/s",
         "it sent to other nodes at 40 Mbit/s instead of the usual 400 Mbit/s"),
        ("it issued all_reduce of 8 float32 while its peers issued barrier",
         "it issued all_reduce of 8 float32 while its peers issued barrier"),
    ],
)  # fmt: skip
def test_words_of_the_analyzer_in_the_past(now: str, then: str) -> None:
    assert past(now) == then
