"""Lint of the native hot path: between the hot marks nothing may block, allocate or call the kernel."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[2] / "native" / "src"

FORBIDDEN = re.compile(
    r"\b("
    r"malloc|calloc|realloc|free|strdup|aligned_alloc|posix_memalign|alloca|new|delete"  # allocation
    r"|pthread_(?:mutex|rwlock|spin|cond)\w*|mtx_\w+|cnd_\w+|sem_\w+|call_once|pthread_once"  # locks
    r"|lock_guard|unique_lock|scoped_lock|mutex"
    r"|v?f?printf|v?s?n?printf|vsnprintf|puts|fputs|perror|syslog"  # text
    r"|getenv|setenv|secure_getenv"
    r"|syscall|open|openat|close|read|write|writev|send|sendmsg|recv|recvmsg|mmap|munmap|ioctl|fstat|stat|getpid|gettid"
    r"|usleep|nanosleep|sleep|sched_yield|dlopen|dlsym|fork|time|gettimeofday|throw"
    r")\s*\("
    r"|\b(new|throw|delete)\s+\w"
)
COMMENTS_AND_STRINGS = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
HOT = re.compile(r"/\* hot \*/(.*?)/\* end hot \*/", re.DOTALL)


def offences(source: str) -> list[str]:
    """Line and name of everything forbidden in the hot parts of a source."""
    found = []
    for region in HOT.finditer(source):
        code = COMMENTS_AND_STRINGS.sub(lambda text: "\n" * text[0].count("\n"), region[1])
        for offence in FORBIDDEN.finditer(code):
            line = source.count("\n", 0, region.start(1)) + code.count("\n", 0, offence.start()) + 1
            found.append(f"line {line}: {offence[0]}")
    return found


def sources() -> list[Path]:
    return sorted(path for path in NATIVE.iterdir() if path.suffix in {".c", ".h", ".cpp"})


@pytest.mark.parametrize("path", sources(), ids=lambda path: path.name)
def test_hot_path_stays_in_user_space(path: Path) -> None:
    assert offences(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", sources(), ids=lambda path: path.name)
def test_hot_marks_come_in_pairs(path: Path) -> None:
    marks = re.findall(r"/\* (hot|end hot) \*/", path.read_text(encoding="utf-8"))
    assert marks == ["hot", "end hot"] * (len(marks) // 2)


def test_ring_marks_its_hot_path() -> None:
    assert sum(len(HOT.findall(path.read_text(encoding="utf-8"))) for path in sources()) > 0


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("/* hot */\nvoid *p = malloc(8);\n/* end hot */", 2),
        ("int a;\n/* hot */\n/* two\nlines */ pthread_mutex_lock(&m);\n/* end hot */", 4),
        ('/* hot */ f();\n\nfprintf(stderr, "x"); /* end hot */', 3),
        ("/* hot */ getenv(name); /* end hot */", 1),
        ("/* hot */ write (fd, p, n); /* end hot */", 1),
        ("/* hot */ auto p = new int; /* end hot */", 1),
    ],
)
def test_offence_is_found_with_its_line(code: str, line: int) -> None:
    assert [offence.split(":")[0] for offence in offences(code)] == [f"line {line}"]


@pytest.mark.parametrize(
    "code",
    [
        "malloc(8); /* hot */ x = 1; /* end hot */ free(p);",
        '/* hot */ // malloc(8) would do\n f("printf(1)"); /* end hot */',
        "/* hot */ wr_time(1); my_read(2); freeze(3); /* end hot */",
        "/* hot */ clock_gettime(CLOCK_MONOTONIC, &t); /* end hot */",  # vDSO: no system call
    ],
)
def test_what_is_allowed_is_not_found(code: str) -> None:
    assert offences(code) == []
