"""Hides names and addresses of hosts in texts.

A host that is known is replaced wherever it stands: its full name, its short name, its name in the name of a job.
Lines of logs also name hosts that nothing else knows of. Those are recognised by how they are written, since a dotted
name may just as well be a module of Python; `_is_host` has the rules.
"""

from __future__ import annotations

import ipaddress
import re
import sys
from collections.abc import Iterable
from typing import Final

A_HOST: Final = "a host"
AN_ADDRESS: Final = "an address"
_MOST_IN_JOB: Final = 24
"""Characters of a host in the name of a job."""
_LEAST_SIMILAR: Final = 3
"""Letters that a name needs for others to be taken for its like: `gpu17` and `gpu18`, but not `n1` and `n2`."""

# What was replaced is marked with characters that stand in no text, so that it is not taken for a name again.
_HOST_MARK, _ADDRESS_MARK, _OPEN, _CLOSE = "\ue000", "\ue001", "\ue002", "\ue003"
_KNOWN_MARK: Final = re.compile(f"{_OPEN}(\\d+){_CLOSE}")

_DOTTED: Final = r"(?:\.[\w-]*\w)*"
_NAME: Final = re.compile(
    rf"(?:(?<=//)|(?<=[\w.+-]@)|(?<![\w./@-]))(?P<name>[A-Za-z0-9](?:[\w-]*\w)?{_DOTTED})(?P<port><\d{{1,5}}>|\]?:\d{{1,5}}\b)?"
)
_V4: Final = r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?!\w|\.\d)"
_V6: Final = r"(?<![\w:.])(?:[0-9a-fA-F]{0,4}:){2,7}(?:[0-9a-fA-F]{1,4}|(?:\d{1,3}\.){3}\d{1,3})?(?:%\w+)?(?![\w:])"
_ADDRESS: Final = re.compile(f"{_V6}|{_V4}")
_NODE: Final = re.compile(r"[a-z]+(?:-[a-z]+)*-?\d+[a-z]?(?:-[a-z0-9]+)*", re.IGNORECASE)
"""A first part as nodes are called: `gpu17`, `ip-10-0-0-7`, `node-3`."""
_SAID: Final = re.compile(r"(?:host|hostname|node|machine|server|peer)[\s=:'\"]+$", re.IGNORECASE)
"""Words before the name of a node."""
_FILES: Final = frozenset(
    {"c", "cc", "cpp", "cu", "cuh", "err", "gz", "h", "hpp", "json", "jsonl", "log", "out", "pt", "py", "so", "tar",
     "txt", "yaml", "yml", "zst"}
)  # fmt: skip
"""Endings of files."""
_DOMAINS: Final = frozenset({"com", "corp", "edu", "eu", "example", "gov", "internal", "lan", "local", "org"})
"""Last parts of names of hosts."""
_MODULES: Final = sys.stdlib_module_names | {
    "accelerate", "apex", "c10", "c10d", "cuda", "datasets", "deepspeed", "jax", "lightning", "megatron", "nemo",
    "numpy", "pytorch_lightning", "ray", "torch", "torchdata", "torchrun", "torchtitan", "torchvision",
    "transformer_engine", "transformers", "triton", "vllm", "whichrank",
}  # fmt: skip
"""First parts of names in Python."""
_PARTS_OF_MODELS: Final = re.compile(
    r"(?:attn|block|bn|conv|decoder|encoder|expert|fc|h|head|layer|linear|mlp|model|norm|stage)-?\d+", re.IGNORECASE
)
"""First parts of names of parameters: `layer3.conv1.weight`."""


class HiddenHosts:
    """Hides these hosts, and what is written like a host.

    Args:
        known: Names of hosts, full or short.
    """

    def __init__(self, known: Iterable[str]) -> None:
        names = {name.strip(".").lower() for name in known} - {""}
        shorts = sorted({_short(name) for name in names})
        number = {short: at for at, short in enumerate(shorts)}
        self._number = {name: number[_short(name)] for name in names} | number
        for short in shorts:
            self._number.setdefault(_in_job(short), number[short])
        self._number.pop("", None)
        ip = {name for name in names if _is_address(name)}
        domains = {name.partition(".")[2] for name in names - ip} - {""}
        similar = {
            re.sub(r"\d+", r"\\d+", re.escape(short))
            for short in shorts
            if re.search(r"\d", short) and len(re.findall("[a-z]", short)) >= _LEAST_SIMILAR
        }
        self._known = _any_of(map(re.escape, self._number), rf"(?<![A-Za-z0-9])(%s)(?![A-Za-z0-9])({_DOTTED})")
        self._of_domain = _any_of(map(re.escape, domains), r"(?<![\w.-])(?:[\w-]+\.)*(?:%s)(?![\w-])")
        self._similar = _any_of(similar, rf"(?<![A-Za-z0-9])(%s)(?![A-Za-z0-9])({_DOTTED})")

    def hide(self, text: str) -> str:
        """The text without them: `host-0` stands for a known one, `a host` and `an address` for others."""
        if self._known:
            text = self._known.sub(
                lambda found: f"{_OPEN}{self._number[found[1].lower()]}{_CLOSE}{_ending(found)}", text
            )
        if self._of_domain:
            text = self._of_domain.sub(_HOST_MARK, text)
        if self._similar:
            text = self._similar.sub(lambda found: _HOST_MARK + _ending(found), text)
        text = _ADDRESS.sub(lambda found: _ADDRESS_MARK if _is_address(found.group()) else found.group(), text)
        text = _NAME.sub(lambda found: _HOST_MARK + (found["port"] or "") if _is_host(found) else found.group(), text)
        text = text.replace(_HOST_MARK, A_HOST).replace(_ADDRESS_MARK, AN_ADDRESS)
        return _KNOWN_MARK.sub(r"host-\1", text)

    def _stand_in(self, found: re.Match[str]) -> str:
        return f"{_OPEN}{self._number[found[1].lower()]}{_CLOSE}{_ending(found)}"


def _short(name: str) -> str:
    return name if _is_address(name) else name.partition(".")[0]


def _in_job(short: str) -> str:
    """As it stands in the name of a job."""
    return "".join(c for c in short if c.isascii() and (c.isalnum() or c == "-"))[:_MOST_IN_JOB]


def _any_of(patterns: Iterable[str], around: str) -> re.Pattern[str] | None:
    """What finds any of these, the longest first; None if there are none."""
    some = "|".join(sorted(patterns, key=len, reverse=True))
    return re.compile(around % some, re.IGNORECASE) if some else None


def _ending(found: re.Match[str]) -> str:
    """A domain behind a host goes with it, the ending of a file stays."""
    last = found[2].rpartition(".")[2]
    return f".{last}" if last.lower() in _FILES else ""


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return not re.match("c10d?::", text)  # a name in torch's C++ may be one, too


def _is_host(found: re.Match[str]) -> bool:
    """Is a name written as that of a host?

    It is if it has a port as NCCL and torch write it (`db7<29500>`, `[db7]:29500`), or stands behind `//` or `user@`.
    Else it has to look like a node (`gpu17`) and to have a port, two more parts (`gpu17.rack2.dc1`) or a word before it
    (`host gpu17`), or to end like a domain (`store.acme.com`). Files, numbers, classes, and names that begin like a
    module of Python or a part of a model are no hosts.
    """
    name, port, before = found["name"], found["port"] or "", found.string[: found.start()]
    first, *others = name.split(".")
    last = others[-1] if others else ""
    if not re.search("[A-Za-z]", name) or last.lower() in _FILES:
        return False
    if port.startswith(("<", "]")) or before.endswith(("//", "@")):
        return True
    is_class = last[:1].isupper() and not last.isupper()
    if "_" in name or is_class or first.lower() in _MODULES or _PARTS_OF_MODELS.fullmatch(first):
        return False
    if last and not last[0].isalpha():
        return False
    if last.lower() in _DOMAINS and len(others) > (0 if port else 1):
        return True
    is_reported = len(port) >= len(":1024") or len(others) > (0 if port else 1) or bool(_SAID.search(before[-16:]))
    return bool(_NODE.fullmatch(first)) and is_reported
