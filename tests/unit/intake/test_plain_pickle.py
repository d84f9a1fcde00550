"""Pickles of others: values, and never code."""

from __future__ import annotations

import os
import pickle

import pytest

from whichrank.errors import FormatError
from whichrank.intake.plain_pickle import load_plain


class _Runs:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch /tmp/whichrank-was-run",)


def test_plain_values_come_through() -> None:
    value = {"a": [1, 2.5, None, True], "b": ("x", {"y": "z"}), 3: 1 << 80}
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert load_plain(pickle.dumps(value, protocol)) == value


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_global_is_refused_and_not_run(protocol: int, tmp_path: object) -> None:
    with pytest.raises(FormatError, match="code is never run"):
        load_plain(pickle.dumps({"entries": [_Runs()]}, protocol))
    assert not os.path.exists("/tmp/whichrank-was-run")  # noqa: PTH110


def test_other_doors_to_code_are_shut() -> None:
    for data in (b"\x80\x02Pid\n.", b"\x80\x02K\x01Q.", b"\x80\x02\x82\x01.", b"cos\nsystem\n(S'ls'\ntR."):
        with pytest.raises(FormatError):
            load_plain(data)


def test_a_cut_pickle_is_said_to_be_cut() -> None:
    data = pickle.dumps({"entries": list(range(1000))}, 2)
    for length in (0, 1, 2, 5, len(data) // 2, len(data) - 1):
        with pytest.raises(FormatError, match="cut"):
            load_plain(data[:length])
