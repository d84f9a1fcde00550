"""Where to listen and where to report: the address, and the key from the text, a file or the environment."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from whichrank.errors import UsageError
from whichrank.server.address import (
    Endpoint,
    address_for_others,
    checked_endpoint,
    joined_endpoint,
    served_endpoint,
)
from whichrank.wire.keys import is_key

KEY, OTHER_KEY = "ab" * 32, "cd" * 32
IN_ENVIRONMENT = {"WHICHRANK_KEY": OTHER_KEY}


@pytest.mark.parametrize(
    ("text", "address", "key"),
    [
        ("head:1", "tcp://head:1", ""),
        (f"head:1/{KEY}", "tcp://head:1", KEY),
        (f"tcp://[::1]:1/{KEY}", "tcp://[::1]:1", KEY),
        (f"head/{KEY}", "tcp://head:29480", KEY),
        ("ipc:///a/b", "ipc:///a/b", ""),
    ],
)
def test_an_endpoint_is_read_and_written(tmp_path: Path, text: str, address: str, key: str) -> None:
    endpoint = checked_endpoint("--join", text)
    assert endpoint == Endpoint(address, key)
    assert checked_endpoint("--join", endpoint.as_text()) == endpoint
    file = tmp_path / "join"
    file.write_text(f"{text}\n")
    assert checked_endpoint("--join", f"@{file}") == endpoint


@pytest.mark.parametrize(
    "text", ["head:1/", "head:1/abc", f"head:1/{KEY}0", f"head:1/{KEY[:-1]}x", f"/{KEY}x", "a/b:1"]
)
def test_a_key_that_is_none_is_not_shown(text: str) -> None:
    with pytest.raises(UsageError, match="no key: a key has 64") as refusal:
        checked_endpoint("--join", text)
    assert KEY[:-1] not in str(refusal.value)


@pytest.mark.parametrize("text", [KEY, f"127.0.0.1:1/{KEY}", f"tcp://h:1/{KEY}"])
def test_a_key_in_the_wrong_place_is_not_shown(text: str) -> None:
    for call in (
        lambda: served_endpoint(text, {}, insecure=False),
        lambda: joined_endpoint("--join", KEY, {}, insecure=False),
    ):
        with pytest.raises(UsageError) as refusal:
            call()
        assert KEY not in str(refusal.value)


@pytest.mark.parametrize(("text", "why"), [("@", "no file is named behind @"), (f"/{KEY}", "a key and no address")])
def test_half_of_an_endpoint(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        checked_endpoint("--join", text)


def test_a_key_in_the_environment_may_end_with_a_line() -> None:
    assert joined_endpoint("--join", "h:1", {"WHICHRANK_KEY": f"{KEY}\n"}, insecure=False).key == KEY


def test_files_that_hold_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "empty").touch()
    (tmp_path / "two").write_text(f"head:1/{KEY}\nhead:2/{KEY}\n")
    for name, why in (
        ("absent", "cannot be read: No such file"), (".", "cannot be read: "), ("pipe", "cannot be read: "),
        ("binary", "cannot be read: it is no text"), ("empty", "holds no HOST:PORT/KEY"), ("two", "holds no"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=why) as refusal:
            checked_endpoint("--join", f"@{tmp_path / name}")
        assert KEY not in str(refusal.value)
        assert refusal.value.mend


def test_who_joins_needs_a_key_but_on_a_socket_of_files() -> None:
    assert joined_endpoint("--join", "h:1", IN_ENVIRONMENT, insecure=False).key == OTHER_KEY
    assert joined_endpoint("--join", f"h:1/{KEY}", IN_ENVIRONMENT, insecure=False).key == KEY
    assert joined_endpoint("--join", "h:1", {}, insecure=True).key == ""
    assert joined_endpoint("--join", "ipc:///a", {}, insecure=False).key == ""
    with pytest.raises(UsageError, match="--join needs the key of the job") as refusal:
        joined_endpoint("--join", "h:1", {}, insecure=False)
    assert "--join @FILE" in refusal.value.mend


def test_who_serves_has_the_key_of_the_environment_or_a_new_one() -> None:
    assert served_endpoint("0.0.0.0:1", IN_ENVIRONMENT, insecure=False) == Endpoint("tcp://0.0.0.0:1", OTHER_KEY)
    first, second = (served_endpoint("1", {}, insecure=False).key for _ in range(2))
    assert is_key(first)
    assert first != second
    assert served_endpoint("0.0.0.0:1", IN_ENVIRONMENT, insecure=True).key == ""
    assert served_endpoint("ipc:///a", {}, insecure=False).key == ""


def test_a_wrong_key_in_the_environment_is_refused_and_not_shown() -> None:
    wrong = {"WHICHRANK_KEY": KEY + "0"}
    for call in (
        lambda: served_endpoint("1", wrong, insecure=False),
        lambda: joined_endpoint("-j", "1", wrong, insecure=False),
    ):
        with pytest.raises(UsageError, match="it has 65 characters, and a key has 64") as refusal:
            call()
        assert KEY not in str(refusal.value)


@pytest.mark.parametrize("bound", ["tcp://0.0.0.0:29480", "tcp://[::]:29480"])
def test_all_interfaces_are_this_host(bound: str) -> None:
    assert address_for_others(bound) == f"{socket.gethostname()}:29480"


def test_one_interface_is_itself() -> None:
    assert address_for_others("tcp://10.0.0.5:1") == "10.0.0.5:1"
    assert address_for_others("tcp://[::1]:1") == "[::1]:1"
