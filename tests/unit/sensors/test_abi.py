"""The Python sensor's view of the core is the compiler's, and its numbers are those of the model and of torch."""

from __future__ import annotations

import ctypes
import json
import re
from enum import IntEnum, IntFlag
from pathlib import Path

import pytest
import torch

from whichrank.model.codes import Flag, SensorState, Status, WaitHow
from whichrank.model.kinds import Kind
from whichrank.model.sensors import SENSORS
from whichrank.native import INCLUDE, load_core, native_path
from whichrank.ring import layout
from whichrank.sensors import abi
from whichrank.sensors.arguments import DTYPE_NUMBERS

# The names of c10::ScalarType that are not those of torch.dtype in lower case.
C10_NAMES = {"byte": "uint8", "char": "int8", "short": "int16", "int": "int32", "long": "int64"}
C10_NAMES |= {"half": "float16", "float": "float32", "double": "float64"}
C10_NAMES |= {"complexhalf": "complex32", "complexfloat": "complex64", "complexdouble": "complex128"}


def test_op_has_the_size_that_the_compiler_gives_it() -> None:
    core = load_core()
    core.wr_layout_json.restype = ctypes.c_char_p
    assert json.loads(core.wr_layout_json())["sizeof.wr_op"] == ctypes.sizeof(abi.Op)


def test_op_has_the_fields_of_the_header_in_order() -> None:
    header = (native_path(INCLUDE) / "whichrank" / "ring.h").read_text()
    body = re.search(r"typedef struct \{([^{}]*)\} wr_op;", header)
    assert body is not None
    declared = re.sub(r"/\*.*?\*/", "", body.group(1), flags=re.DOTALL)
    statements = [statement.strip() for statement in declared.split(";") if statement.strip()]
    names = [
        name.strip(" *") for statement in statements for name in re.sub(r"^(const )?\w+ ", "", statement).split(",")
    ]
    assert names == [field[0] for field in abi.Op._fields_]


def numbers_of(enum: str) -> dict[str, int]:
    """The members of an enum of the header: `WR_A = 1, WR_B` is {"WR_A": 1, "WR_B": 2}."""
    header = re.sub(r"/\*.*?\*/", "", (native_path(INCLUDE) / "whichrank" / "ring.h").read_text(), flags=re.DOTALL)
    body = re.search(rf"enum {enum} {{(.*?)}};", header, flags=re.DOTALL)
    assert body is not None
    numbers: dict[str, int] = {}
    for member in filter(None, map(str.strip, body.group(1).split(","))):
        name, _, value = (part.strip() for part in member.partition("="))
        one, _, bits = value.partition("<<")
        known = int(one.strip("u ")) << int(bits or 0) if value else max(numbers.values(), default=-1) + 1
        numbers[name] = known
    return numbers


@pytest.mark.parametrize(
    ("ours", "theirs", "prefix", "ours_alone"),
    [
        (Kind, "wr_kind", "WR_", {"OUTSIDE"}),
        (Flag, "wr_flag", "WR_FLAG_", {"FREE_SIZES"}),
        (Status, "wr_status", "WR_", set()),
        (WaitHow, "wr_wait_how", "WR_WAIT_", {"FUTURE"}),
        (SensorState, "wr_sensor_state", "WR_SENSOR_", set()),
    ],
)
def test_numbers_are_those_of_the_header(
    ours: type[IntEnum | IntFlag], theirs: str, prefix: str, ours_alone: set[str]
) -> None:
    known = {name.removeprefix(prefix).removeprefix("KIND_"): value for name, value in numbers_of(theirs).items()}
    assert {member.name: member.value for member in ours if member.name not in ours_alone} == known
    assert not ours_alone & set(known)


def test_sensors_and_format_are_those_of_the_model() -> None:
    places = {f"{sensor.name.upper()}": sensor.place for sensor in SENSORS}
    assert numbers_of("wr_sensor") == {f"WR_SENSOR_{name}": place for name, place in places.items()} | {
        "WR_SENSORS": len(SENSORS)
    }
    assert [sensor.place for sensor in SENSORS] == list(range(len(SENSORS)))
    header = (native_path(INCLUDE) / "whichrank" / "ring.h").read_text()
    assert f"#define WR_VERSION {layout.VERSION}u" in header


def test_dtypes_have_the_numbers_of_the_installed_torch() -> None:
    include = Path(torch.__file__).parent / "include"
    headers = [include / "torch" / "headeronly" / "core" / "ScalarType.h", include / "c10" / "core" / "ScalarType.h"]
    found: dict[str, int] = {}
    for header in headers:
        reported = re.findall(
            r"_\([\w:<>]+, (\w+)\)\s*/\*\s*(\d+)\s*\*/", header.read_text() if header.exists() else ""
        )
        found |= {C10_NAMES.get(name.lower(), name.lower()): int(number) for name, number in reported}
    assert found["bfloat16"] == 15
    numbers = {str(dtype).removeprefix("torch."): number for dtype, number in DTYPE_NUMBERS.items()}
    compared = numbers.keys() & found.keys()
    assert len(compared) > 20
    assert {name: numbers[name] for name in compared} == {name: found[name] for name in compared}
