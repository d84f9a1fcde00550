"""Lint of the native hot path: what an operation runs through may not block, allocate or call the kernel.

Three looks at the code between the hot marks. Nothing forbidden is in it. What must be hot is in it: every function
that the header calls hot, the kernels and the work object of the c10d sensor, what follows each socket call. And it is
closed: a hot function calls hot functions, what is listed here as harmless, and nothing else, so a call that is new has
to be thought about. The exceptions are listed with their reason and counted.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[2] / "native"

FORBIDDEN = re.compile(
    r"\b("
    r"malloc|calloc|realloc|free|strdup|aligned_alloc|posix_memalign|alloca|new|delete"  # allocation
    r"|make_shared|make_unique|make_intrusive|push_back|emplace_back|emplace|resize|reserve|append|substr"
    r"|to_string|addCallback|toIntVector|toTensorVector|toTensorList|toIntList|vec"
    r"|pthread_(?:mutex|rwlock|spin|cond)\w*|mtx_\w+|cnd_\w+|sem_\w+|call_once|pthread_once"  # locks
    r"|v?f?printf|v?s?n?printf|vsnprintf|puts|fputs|perror|syslog"  # text
    r"|getenv|setenv|secure_getenv"
    r"|syscall|open|openat|close|read|write|writev|send|sendmsg|recv|recvmsg|mmap|munmap|ioctl|fstat|stat|getpid|gettid"
    r"|usleep|nanosleep|sleep|sched_yield|dlopen|dlsym|fork|time|gettimeofday|throw"
    r")\s*(?:<[^;(){}]*>)?\s*\("
    r"|\b(new|throw|delete)\s+\w"
    r"|\bstd::(mutex|lock_guard|unique_lock|scoped_lock|shared_lock|shared_mutex|condition_variable)\b"
    r"|\bstd::(string|vector|map|unordered_map|deque|list|function|any|ostringstream|cerr|cout)\b"
)
COMMENTS_AND_STRINGS = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
HOT = re.compile(r"/\* hot \*/(.*?)/\* end hot \*/", re.DOTALL)
CALL = re.compile(r"\b([A-Za-z_]\w*)\s*(?:<[^;(){}<>]*(?:<[^;(){}<>]*>)?[^;(){}<>]*>)?\s*\(")
DEFINED = re.compile(
    r"\b([A-Za-z_]\w*)\s*\((?:[^;{}()]|\([^()]*\))*\)\s*(?:(?:const|noexcept|override|final|try)\s*)*(?::[^;]*?\}\s*)?\{"
)
NO_CALLS = frozenset(["if", "for", "while", "switch", "return", "sizeof", "catch", "static_cast", "reinterpret_cast"])
HARMLESS_START = ("__atomic_", "__builtin_", "__attribute__", "tls_model")

# Calls that neither lock, allocate nor enter the kernel, by what they are.
HARMLESS = frozenset(
    [
        *("LOAD", "STORE", "LOAD_ACQUIRE", "STORE_RELEASE", "ADD", "WR_FENCE", "UINT32_C", "UINT64_C"),  # atomics.h
        *("wr_cas32", "wr_cas64", "wr_mix64"),
        "clock_gettime",  # the vDSO answers
        *("load", "store", "memory_order_relaxed"),  # std::atomic
        *("clamp", "min", "move", "get", "data", "size", "back", "what", "type", "name"),
        # Looks at what torch's values hold; a reference is counted at most.
        *("isTensor", "isList", "isTensorList", "toTensor", "toInt", "toBool", "toListRef", "toObjectRef", "getSlot"),
        *("toCapsule", "static_intrusive_pointer_cast", "intrusive_ptr", "IValue", "DispatchKeySet"),
        *("defined", "numel", "dim", "scalar_type", "device", "hasError"),
        # Passed on to torch: this is the program's own call.
        *("redispatchBoxed", "Work", "retrieveOpType", "isCompleted", "wait", "getFuture", "isSuccess", "exception"),
        *("sourceRank", "result", "synchronize", "blockCurrentStream", "abort", "getFutureResult", "getDuration"),
        "getSequencenumber",
    ]
)

# (file, what): how often it is there, and why it may be.
EXCEPTIONS = {
    ("c10d_sensor.cpp", "make_intrusive"): (1, "the work object of Gloo is wrapped, so that a wait is seen"),
    ("c10d_sensor.cpp", "make_shared"): (1, "wrapper and callback share the operation; either may end first"),
    ("c10d_sensor.cpp", "addCallback"): (1, "the end of a collective is told by its future only"),
    ("c10d_sensor.cpp", "std::vector"): (1, "the type that `Work::result` has"),
    ("c10d_sensor.cpp", "meet_group"): (1, "at the first operation of a group that Python did not tell of"),
    ("c10d_sensor.cpp", "wr_note_failure"): (2, "an operation failed"),
    ("c10d_sensor.cpp", "tryRetrieveErrorMessage"): (1, "an operation failed"),
    ("c10d_sensor.cpp", "c_str"): (1, "an operation failed"),
    ("c10d_sensor.cpp", "wr_gate_pass"): (1, "training is to wait here, while the gate is closed only"),
    ("operations.c", "first_thread_id"): (1, "once per thread"),
    ("socket_sensor.c", "classify"): (1, "once per descriptor"),
    ("socket_sensor.c", "verify"): (1, "a connection that was idle for 100 ms"),
}

MUST_BE_HOT = {
    "c10d_sensor.cpp": {
        *("kernel", "before_call", "watch_work", "follow_future", "done_call", "failed_call", "find_group"),
        *("WatchedWork", "isCompleted", "wait", "getFuture", "writable", "end", "fail"),
    },
    "c10d_arguments.h": {
        "fill_op",
        "signature_of",
        "copy_splits",
        "copy_sizes",
        "counts_output",
        "object_of",
        "add",
        "mix",
        "as_ms",
    },
    "socket_sensor.c": {"note", "count", "is_store", "now_ns"},
    "ring.c": {"wr_process_ring"},
    "transport.h": {"wr_connection_count", "wr_frame_count_inline", "wr_connection_last_ns", "wr_connection_is"},
}


def bare(code: str) -> str:
    """Code without comments and the contents of strings, on the same lines."""
    return COMMENTS_AND_STRINGS.sub(lambda text: "\n" * text[0].count("\n"), code)


def hot_parts(source: str) -> list[tuple[int, str]]:
    """First line and code of every hot part."""
    return [(source.count("\n", 0, region.start(1)) + 1, bare(region[1])) for region in HOT.finditer(source)]


def offences(source: str) -> list[str]:
    """Line and name of everything forbidden in the hot parts of a source."""
    return [
        f"line {line + code.count(chr(10), 0, offence.start())}: {offence[0]}"
        for line, code in hot_parts(source)
        for offence in FORBIDDEN.finditer(code)
    ]


def named(offence: str) -> str:
    """What an offence is about: `make_shared` of `line 3: make_shared<Tracked>(`."""
    found = re.match(r"line \d+: ((?:std::)?\w+)", offence)
    assert found is not None
    return found[1]


def defined_in(source: str) -> set[str]:
    """Functions whose definition is hot."""
    return {name for _, code in hot_parts(source) for name in DEFINED.findall(code)} - NO_CALLS


def calls_in(source: str) -> Counter[str]:
    """How often each name is called (or defined) in the hot parts, without keywords and compiler built-ins."""
    names = [name for _, code in hot_parts(source) for name in CALL.findall(code)]
    return Counter(name for name in names if name not in NO_CALLS and not name.startswith(HARMLESS_START))


def sources() -> list[Path]:
    return sorted(path for path in NATIVE.glob("[is]*/**/*") if path.suffix in {".c", ".h", ".cpp"})


def text_of(name: str) -> str:
    (path,) = [path for path in sources() if path.name == name]
    return path.read_text(encoding="utf-8")


def excepted(path: Path) -> Counter[str]:
    return Counter({what: often for (file, what), (often, _) in EXCEPTIONS.items() if file == path.name})


each_source = pytest.mark.parametrize("path", sources(), ids=lambda path: path.name)


@each_source
def test_hot_path_stays_in_user_space(path: Path) -> None:
    found = offences(path.read_text(encoding="utf-8"))
    counted = Counter(named(offence) for offence in found)
    assert counted <= excepted(path), found


@each_source
def test_hot_path_is_closed(path: Path) -> None:
    # GIVEN everything that is defined as hot anywhere
    hot = {name for source in sources() for name in defined_in(source.read_text(encoding="utf-8"))}
    # THEN what a hot part calls is one of these, harmless, or an exception
    called = calls_in(path.read_text(encoding="utf-8"))
    unknown = {name: often for name, often in called.items() if name not in hot | HARMLESS}
    assert Counter(unknown) <= excepted(path)


def test_exceptions_are_still_there() -> None:
    for (file, what), (often, reason) in EXCEPTIONS.items():
        code = "\n".join(part for _, part in hot_parts(text_of(file)))
        assert len(re.findall(rf"\b{what}\b", code)) == often, f"{file}: {what}, excused since: {reason}"


@each_source
def test_hot_marks_come_in_pairs(path: Path) -> None:
    marks = re.findall(r"/\* (hot|end hot) \*/", path.read_text(encoding="utf-8"))
    assert marks == ["hot", "end hot"] * (len(marks) // 2)


def test_what_the_header_calls_hot_is_marked() -> None:
    section = re.search(r"/\* -+ operations \(hot\) -+ \*/(.*?)/\* -+ ", text_of("ring.h"), re.DOTALL)
    assert section is not None
    declared = set(re.findall(r"\b(wr_\w+)\(", bare(section[1])))
    assert {"wr_op_begin", "wr_op_end", "wr_wait_begin", "wr_push", "wr_trace"} <= declared
    assert declared <= defined_in(text_of("operations.c")) | defined_in(text_of("communicators.c"))


@pytest.mark.parametrize("file", MUST_BE_HOT)
def test_what_an_operation_runs_through_is_marked(file: str) -> None:
    assert MUST_BE_HOT[file] <= defined_in(text_of(file))


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("/* hot */\nvoid *p = malloc(8);\n/* end hot */", 2),
        ("int a;\n/* hot */\n/* two\nlines */ pthread_mutex_lock(&m);\n/* end hot */", 4),
        ('/* hot */ f();\n\nfprintf(stderr, "x"); /* end hot */', 3),
        ("/* hot */ getenv(name); /* end hot */", 1),
        ("/* hot */ write (fd, p, n); /* end hot */", 1),
        ("/* hot */ auto p = new int; /* end hot */", 1),
        ("/* hot */ std::lock_guard<std::mutex> lock(m); /* end hot */", 1),
        ("/* hot */ auto p = std::make_shared<Tracked>(ring); /* end hot */", 1),
        ("/* hot */ std::vector<int> v; /* end hot */", 1),
        ("/* hot */ std::string s = error.what(); /* end hot */", 1),
        ("/* hot */ auto sizes = list.toIntVector(); /* end hot */", 1),
    ],
)
def test_offence_is_found_with_its_line(code: str, line: int) -> None:
    assert {offence.split(":")[0] for offence in offences(code)} == {f"line {line}"}


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


def test_definitions_and_calls_are_reported() -> None:
    code = """
    /* hot */
    static int add(int a) { return one(a) + two<T>(a); }
    bool wait(milliseconds t) override {
      if (three(t)) return false;
    }
    Thing(int a) : Base(a), a_{a} {}
    void before(int a) noexcept try { four(a, (int (*)(void))b); } catch (...) {}
    /* end hot */
    void cold(void) { five(); }
    """
    assert defined_in(code) == {"add", "wait", "Thing", "before"}
    assert {"one", "two", "three", "four", "Base"} <= calls_in(code).keys()
    assert not {"five", "cold", "if", "catch"} & calls_in(code).keys()
