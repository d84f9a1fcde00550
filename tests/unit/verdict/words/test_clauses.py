"""Clauses in words: each kind in the present and in the past."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from string import Formatter

import pytest

import whichrank
from whichrank.model.clause import Clause, Says, clause
from whichrank.verdict.words import clauses
from whichrank.verdict.words.clauses import sentence, words

PLACE = "f (/a/is.py:3)"


@pytest.mark.parametrize(
    ("said", "now", "then"),
    [
        ([clause(Says.NOT_ENTERED, op="recv #3 on pp"), clause(Says.OWN_CODE_IN, place=PLACE)],
         "it has not entered recv #3 on pp, and it is in its own code, in f (/a/is.py:3)",
         "it had not entered recv #3 on pp, and it was in its own code, in f (/a/is.py:3)"),
        ([clause(Says.NOT_ANSWERED, op="send #2", waiting=(6,), group="pp"), clause(Says.SUSPENDED)],
         "it has not answered the send #2 in which rank 6 waits on pp, and its process is suspended",
         "it had not answered the send #2 in which rank 6 waited on pp, and its process was suspended"),
        ([clause(Says.ASLEEP_WITH_GIL, thread="main thread"), clause(Says.IS_IN, place=PLACE)],
         "its main thread sleeps in the kernel while it holds the GIL; it is in f (/a/is.py:3)",
         "its main thread slept in the kernel while it held the GIL; it was in f (/a/is.py:3)"),
        ([clause(Says.IN_NO_OPERATION), clause(Says.WRITES)],
         "it is in no operation while others wait, and its process writes",
         "it was in no operation while others waited, and its process wrote"),
        ([clause(Says.ENDED_AND_AWAITED, op="barrier #2 on dp", waiting=3)],
         "it has ended in order, and 3 ranks wait for it in barrier #2 on dp",
         "it had ended in order, and 3 ranks waited for it in barrier #2 on dp"),
        ([clause(Says.NOT_REACHED, waiting=1)],
         "it has not reached the point where 1 rank waits", "it had not reached the point where 1 rank waited"),
        ([clause(Says.NOT_ANSWERED_CALLS, waiting=())],
         "it has not answered remote calls for which others wait",
         "it had not answered remote calls for which others waited"),
        ([clause(Says.NOT_COMPLETED, op="all_reduce #7 on dp", later=2)],
         "it does not complete all_reduce #7 on dp, although it has entered it, and its peers have completed it and 2 "
         "after it",
         "it did not complete all_reduce #7 on dp, although it had entered it, and its peers had completed it and 2 "
         "after it"),
        ([clause(Says.ISSUED_UNLIKE, op="all_reduce of 7 float32 (sum)", usual="barrier", peer=-1,
                 witnesses=("own_past", "majority"))],
         "it issued all_reduce of 7 float32 (sum) while its peers issued barrier; it differs from its own earlier "
         "iterations and from the majority",
         "it issued all_reduce of 7 float32 (sum) while its peers issued barrier; it differed from its own earlier "
         "iterations and from the majority"),
        ([clause(Says.SIZES_DIFFER), clause(Says.SENT_UNEXPECTED, sent=7, dst=2, expected=5)],
         "it issued an all-to-all whose sizes do not match those of its peers, and theirs match each other: it sent 7 "
         "elements to rank 2, which expected 5",
         "it issued an all-to-all whose sizes do not match those of its peers, and theirs match each other: it sent 7 "
         "elements to rank 2, which expected 5"),
        ([clause(Says.SKEWED, did="left out", operations=1, group="dp", witness="same_position")],
         "it left out an operation on dp; the other ranks in its position did not",
         "it left out an operation on dp; the other ranks in its position did not"),
        ([clause(Says.WRONG_ORDER, entered="barrier #1 on dp", owed="barrier #4 on tp", waiting=(3,),
                 order=("own_past", 7))],
         "it has entered barrier #1 on dp, but not yet barrier #4 on tp, in which rank 3 waits; this order differs "
         "from that of earlier iterations of rank 7",
         "it had entered barrier #1 on dp, but not yet barrier #4 on tp, in which rank 3 waited; this order differed "
         "from that of earlier iterations of rank 7"),
        ([clause(Says.KILLED, number=9, signal="SIGKILL"), clause(Says.OUT_OF_MEMORY)],
         "its process was killed by signal 9 (SIGKILL); the kernel ended it for lack of memory",
         "its process was killed by signal 9 (SIGKILL); the kernel ended it for lack of memory"),
        ([clause(Says.KILLED, number=64, signal="")],
         "its process was killed by signal 64", "its process was killed by signal 64"),
        ([clause(Says.RAISED, exception="ValueError: it is {wrong}, others have [more|less] at /a/b.py:3")],
         "its process raised ValueError: it is {wrong}, others have [more|less], at /a/b.py:3",
         "its process raised ValueError: it is {wrong}, others have [more|less], at /a/b.py:3"),
        ([clause(Says.NODE_SILENT, silent_s=9.2), clause(Says.NO_ANSWER, connections=1)],
         "its node is silent for 9 s, and 1 connection to it got no answer",
         "its node was silent for 9 s, and 1 connection to it got no answer"),
        ([clause(Says.WITHOUT_CPU, share=0.63), clause(Says.OWN_TIME_OF_PEERS, own_s=0.934, times="2.51", peers=1),
          clause(Says.COST, now_s=0.94, best_s=0.48)],
         "it is ready and without a CPU for 63% of the time; it takes 934 ms of own time per iteration, 2.51 times "
         "that of the other rank in its position; it makes an iteration take 940 ms instead of 480 ms",
         "it was ready and without a CPU for 63% of the time; it took 934 ms of own time per iteration, 2.51 times "
         "that of the other rank in its position; it made an iteration take 940 ms instead of 480 ms"),
        ([clause(Says.LIMITED_BY_GROUP, cores=1.0, usual=8.0), clause(Says.COST_TOGETHER, others=(3,), now_s=2.0,
                                                                      best_s=1.0)],
         "its control group limits it to 1 core while its peers have 8; it and rank 3 make an iteration take 2 s "
         "instead of 1 s",
         "its control group limited it to 1 core while its peers had 8; it and rank 3 made an iteration take 2 s "
         "instead of 1 s"),
        ([clause(Says.SLOW_CLOCK, ghz=1.0, usual_ghz=2.0)],
         "its core runs at 1.0 GHz while those of its peers run at 2.0",
         "its core ran at 1.0 GHz while those of its peers ran at 2.0"),
        ([clause(Says.SENDS_AT, rate=5e6, usual=5e7)],
         "it sends to other nodes at 40 Mbit/s instead of the usual 400 Mbit/s",
         "it sent to other nodes at 40 Mbit/s instead of the usual 400 Mbit/s"),
    ],
)  # fmt: skip
def test_clauses_of_a_rank_in_the_present_and_in_the_past(said: list[Clause], now: str, then: str) -> None:
    assert words(said, over=False) == now
    assert words(said, over=True) == then


def test_advice_is_a_sentence_of_its_own() -> None:
    said = sentence(clause(Says.NO_CHECKPOINT_FROM, iteration=20, group="dp"))
    assert said == "use no checkpoint of iteration 20 or later: from then on results on dp are wrong"


def test_each_kind_has_words_and_each_format_is_known() -> None:
    assert set(clauses._WORDS) == set(Says)
    for says, template in clauses._WORDS.items():
        for _, _, spec, _ in Formatter().parse(template):
            assert not spec or spec in clauses._FORMATS or re.fullmatch(r"g|\.\df", spec), says


def test_whoever_makes_a_clause_gives_the_values_that_its_words_need() -> None:
    # GIVEN every place of the sources that makes a clause of a kind that stands there
    made = set()
    for path in Path(whichrank.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "clause":
                names = {keyword.arg for keyword in node.keywords}
                for kind in ast.walk(node.args[0]):
                    if isinstance(kind, ast.Attribute) and isinstance(kind.value, ast.Name) and kind.value.id == "Says":
                        needed = {name for _, name, _, _ in Formatter().parse(clauses._WORDS[Says[kind.attr]]) if name}
                        # THEN it has a value for each place of the words, and none that they do not show
                        assert names == needed, f"{path.name}:{node.lineno} {kind.attr}"
                        made.add(Says[kind.attr])
    # AND no kind is left that nobody makes, but those that are chosen by a name
    assert set(Says) - made <= {Says.NOT_ANSWERED_MESSAGE, Says.NOT_ANSWERED_CALL, Says.NOT_ANSWERED_CALLS,
                                Says.TAKEN_PART, Says.NOT_ANSWERED}  # fmt: skip
