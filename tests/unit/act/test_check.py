"""A check before a job: ranks beside each other and beside a floor, from what they say."""

from __future__ import annotations

from whichrank.act.check import Floor, Floors, judge_check, learned
from whichrank.model.check import Checked, CheckedLink, CheckedRank

GPU = "A device"


def rank(number: int, slower: float = 1.0, link_slower: float = 1.0, device: str = GPU, **more: str) -> CheckedRank:
    """Of four nodes with two ranks each."""
    noise = 1 + 0.01 * (number % 3)
    link = CheckedLink(src=(number - 1) % 8, bytes=1 << 24, seconds=tuple(0.01 * link_slower * noise for _ in range(3)))
    return CheckedRank(
        rank=number, host=f"node{number // 2}", device=device, links=(link,),
        compute_s=tuple(s * slower * noise for _ in range(3) for s in (0.004, 0.001, 0.0)),
        memory_s=(0.02 * noise, 0.021, 0.02), **more,
    )  # fmt: skip


def checked(*ranks: CheckedRank) -> Checked:
    return Checked(world=len(ranks), ranks=ranks, sizes=(1 << 24,), side=1000, copied=1 << 20)


def test_all_well_is_compared_and_nothing_is_slow() -> None:
    judged = judge_check(checked(*map(rank, range(8))), Floors())
    assert (judged.is_slow, judged.is_compared) == (False, True)
    assert judged.speeds[0].float32_flops == 2 * 1000**3 / 0.004
    assert judged.speeds[0].float16_flops == 0.0


def test_a_slow_rank_and_a_slow_link_are_found() -> None:
    judged = judge_check(
        checked(*(rank(r, 2.0 if r == 3 else 1.0, 4.0 if r == 6 else 1.0) for r in range(8))), Floors()
    )
    assert [(one.rank, one.what) for one in judged.ranks] == [(3, "compute")]
    assert [(one.src, one.dst) for one in judged.links] == [(5, 6)]


def test_links_of_a_slow_rank_are_not_blamed() -> None:
    # GIVEN a rank that is slow, also in reading what it is sent
    judged = judge_check(
        checked(*(rank(r, 9.0 if r == 3 else 1.0, 4.0 if r == 3 else 1.0) for r in range(8))), Floors()
    )
    assert [one.rank for one in judged.ranks] == [3]
    assert judged.links == ()


def test_devices_of_another_name_are_not_held_against_each_other() -> None:
    judged = judge_check(checked(*(rank(r, 3.0 if r >= 4 else 1.0, device=f"of {r // 4}") for r in range(8))), Floors())
    assert judged.ranks == ()
    assert judged.is_compared


def test_a_floor_says_something_of_a_single_rank() -> None:
    # GIVEN what these devices do when they are well
    well = judge_check(checked(*map(rank, range(8))), Floors())
    floors = learned(well.speeds, Floors(devices={"another": Floor(float32_flops=1.0)}))
    assert set(floors.devices) == {GPU, "another"}
    assert floors.devices[GPU].float16_flops == 0.0  # nothing is asked of what nobody has
    # THEN one that does less is told by itself, with what, and one that does as much is not
    slow = judge_check(checked(rank(0, 1.5)), floors)
    assert {name: round(factor, 1) for name, factor in slow.below[0].items()} == {
        "float32_flops": 1.3,
        "bfloat16_flops": 1.3,
    }
    assert slow.is_slow
    assert not judge_check(checked(rank(0)), floors).is_slow


def test_what_could_not_be_measured_is_no_speed() -> None:
    nothing = CheckedRank(rank=1, host="node0", device=GPU, problem="computation: it is broken")
    judged = judge_check(checked(rank(0), nothing, rank(2), rank(3)), Floors())
    assert (
        judged.speeds[1].float32_flops == judged.speeds[1].memory_bytes_per_s == judged.speeds[1].link_bytes_per_s == 0
    )
    assert not judged.is_slow
