"""The sentence for an exception that all ranks, or most, raise."""

from __future__ import annotations

import pytest
from incident_cases import incident

from whichrank.model.evidence import RAISED_ALIKE, Evidence
from whichrank.model.incident import Cause, Incident, Reason
from whichrank.verdict.words.raised_alike import raised_alike
from whichrank.verdict.words.text import headline, paragraph

TEXT = "NotImplementedError: operator aten::x has no sharding strategy at /home/me/project/train.py:41"


def raised(count: int, total: int, text: str = TEXT, **changes: object) -> Incident:
    evidence = (
        Evidence(what=RAISED_ALIKE, value=count, where=f"of {total}"),
        Evidence(what="exception", value=text, where="rank 0"),
    )
    fields = {"kind": "failed", "reason": Reason.EXCEPTION, "op": None, "communicator": None, **changes}
    return incident(Cause.UNKNOWN, culprits=(), candidates=(), evidence=evidence, **fields)


@pytest.mark.parametrize("status", ["open", "final"])
def test_all_ranks(status: str) -> None:
    said = headline(raised(4, 4, status=status))
    assert said == (
        'ALERT failure: all 4 ranks raised NotImplementedError: "operator aten::x has no sharding strategy"'
        ", at train.py:41; no rank differs"
    )


def test_most_ranks_are_counted() -> None:
    said = headline(raised(7, 8))
    assert "7 of 8 ranks raised NotImplementedError" in said
    assert said.endswith("the evidence names no rank")
    assert "no rank differs" not in said


def test_the_paragraph_asks_for_no_stacks_and_has_the_whole_text() -> None:
    said = paragraph(raised(4, 4))
    assert "all 4 ranks raised" in said.lower()
    assert "/home/me/project/train.py:41" in said
    assert "decide" not in said


def test_a_long_text_is_cut_at_a_word() -> None:
    said = headline(raised(4, 4, f"ValueError: {'far too many words ' * 12}at train.py:3"))
    assert len(said) < 220
    assert ' …", at train.py:3; no rank differs' in said
    assert said.partition(" …")[0].split()[-1] in ("far", "too", "many", "words")


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("KeyError: ", "KeyError:"),
        ("RuntimeError: met at the gate", 'RuntimeError: "met at the gate"'),
        ("ValueError", "ValueError"),
    ],
)
def test_a_text_without_a_place(text: str, quoted: str) -> None:
    assert raised_alike(raised(2, 2, text)) == f"all 2 ranks raised {quoted}; no rank differs"


def test_any_other_incident_has_a_sentence_of_its_own() -> None:
    assert raised_alike(incident(Cause.PROCESS_EXIT, reason=Reason.EXCEPTION)) == ""
    assert raised_alike(incident(Cause.UNKNOWN, culprits=())) == ""


def test_a_message_that_has_quotes_gets_no_others() -> None:
    assert "raised KeyError: 'y', at train.py:8; no rank differs" in headline(
        raised(3, 3, "KeyError: 'y' at /me/train.py:8")
    )
