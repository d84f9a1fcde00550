"""Errors that the kernel logs of switches, processors and memory, and which ranks they may be of."""

from __future__ import annotations

import pytest

from whichrank.intake.grammar import worded
from whichrank.intake.node_errors import NodeErrors, ranks_on, reports_of
from whichrank.model.reports import Told

HOSTS = {rank: f"node{rank // 2}" for rank in range(4)}
SWITCH = {"host": "node1", "sxid": 20034, "text": "Link 30 LTSSM Fault Up"}


def seen(*lines: str, host: str = "") -> NodeErrors:
    errors = NodeErrors()
    for line in lines:
        errors.see(line, host)
    return errors


def test_a_fatal_error_of_a_switch_is_of_all_ranks_of_its_node() -> None:
    errors = seen(worded("NVIDIA's driver: an error of an NVSwitch", severity="Fatal", **SWITCH)).errors
    ((report,), unknown) = reports_of(errors, HOSTS)
    assert (report.told, report.ranks, unknown) == (Told.NODE_ERROR, (2, 3), [])
    assert report.text == "SXid 20034 of nvswitch0 (fatal: Link 30 LTSSM Fault Up)"


@pytest.mark.parametrize("status", [0x8C00004000010091, 0xDC2041000000011B])
def test_what_hangs_nobody_is_left_out(status: int) -> None:
    switch = worded("NVIDIA's driver: an error of an NVSwitch", severity="Non-fatal", **SWITCH)
    corrected = worded("kernel: a machine check", host="node1", cpu=3, status=status)
    amd = f"[Hardware Error]: CPU:3 (17:31:0) MC17_STATUS[Over|CE|MiscV|AddrV|-|-|SyndV|CECC|-|-|Scrub]: 0x{status:x}"
    assert seen(switch, corrected, amd).errors == {}


@pytest.mark.parametrize(
    "line",
    [
        worded("kernel: a machine check", host="node0", cpu=12, status=0xBE00000000800400),
        "node0 kernel: mce: [Hardware Error]: CPU 12: Machine Check Exception: 5 Bank 1: be00000000800400",
        "Jun  1 03:00:00 node0 kernel: [Hardware Error]: CPU:12 (17:31:0) MC1_STATUS[-|UE|MiscV]: 0xbe00000000800400",
    ],
)
def test_a_machine_check_that_was_not_corrected(line: str) -> None:
    (report,), _ = reports_of(seen(line).errors, HOSTS)
    assert (report.ranks, report.text) == ((0, 1), "a machine check of processor 12 that was not corrected")


def test_a_panic_and_who_is_ended_by_damaged_memory() -> None:
    errors = seen(
        worded("kernel: a panic by a machine check", host="node0"),
        worded("kernel: killed by damaged memory", pid=6003),
        worded("kernel: a signal by damaged memory", pid=6004),
        "MCE 0x1840: Killing python3:6005 early due to hardware memory corruption",
    )
    assert [(one.host, one.text) for one in errors.errors] == [("node0", "a kernel panic by a machine check")]
    assert [one.pid for one in errors.corrupted] == [6003, 6004, 6005]


def test_a_host_is_said_by_the_line_or_by_what_collected_it_or_there_is_only_one() -> None:
    line = worded("NVIDIA's driver: an error of an NVSwitch", severity="Fatal", **SWITCH).split("kernel: ")[1]
    assert reports_of(seen(line, host="node0").errors, HOSTS)[0][0].ranks == (0, 1)
    reports, (remark,) = reports_of(seen(line).errors, HOSTS)
    assert reports == []
    assert "no line says which ranks are there" in remark
    assert reports_of(seen(line).errors, {0: "a", 1: "a"})[0][0].ranks == (0, 1)


def test_names_of_hosts_with_and_without_a_domain_are_one() -> None:
    assert ranks_on("node1.cluster", HOSTS) == [2, 3]
    assert ranks_on("10.0.0.2", {0: "10.0.0.1", 1: "10.0.0.2"}) == [1]
