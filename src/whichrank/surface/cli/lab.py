"""`whichrank lab`: a real cluster in a box."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from whichrank.surface.cli.lab_run import list_all, network_options, run
from whichrank.surface.cli.lab_score import score

if TYPE_CHECKING:
    from whichrank.testbed.lab.box import LabFile


@click.group(name="lab")
def command() -> None:
    """A cluster in a box: nodes are network namespaces, joined by a leaf-spine network with the kernel's own ECMP."""


@command.command()
@click.option("--name", help="Up to twelve small letters and digits; drawn if not given.")
@network_options
def up(name: str | None, nodes: int, leaves: int, spines: int, ports: int, rate: str) -> None:
    """Make a lab that stays until `whichrank lab down`; prints its name.

    A command runs on its first node with  nsenter --net=/run/netns/wrlab-NAME-node-0 COMMAND,
    at the address 10.77.0.1.
    """
    from whichrank.surface.leave import leave_on_signals
    from whichrank.testbed.lab.box import Lab, remove_abandoned
    from whichrank.testbed.lab.network import checked_rate
    from whichrank.testbed.lab.topology import Topology
    from whichrank.testbed.lab.userspace import refuse_without_root

    refuse_without_root()
    leave_on_signals()
    remove_abandoned()
    lab = Lab.make(Topology(nodes, leaves, spines, ports), checked_rate(rate), name, stays=True)
    click.echo(lab.file.name)


@command.command()
@click.argument("names", nargs=-1)
@click.option("--all", "remove_every", is_flag=True, help="Every lab, and what crashed ones have left.")
def down(names: tuple[str, ...], remove_every: bool) -> None:
    """Kill what runs in a lab and remove all of it; without a name, the only one that there is."""
    from whichrank.errors import UsageError
    from whichrank.testbed.lab.box import checked_name, is_anything_left, labs, remove, remove_all
    from whichrank.testbed.lab.userspace import refuse_without_root

    if remove_every and names:
        raise UsageError(
            "--all is every lab, and no other is to be named", where=" ".join(names), mend="leave --all out"
        )
    refuse_without_root()
    if remove_every:
        _say_removed(remove_all())
        return
    there = [lab.name for lab in labs()]
    if not names and len(there) != 1:
        raise UsageError(
            f"there are {len(there)} labs" if there else "there is no lab",
            where=", ".join(there),
            mend="whichrank lab down NAME, or --all",
        )
    wanted = list(dict.fromkeys(names or there))
    for name in wanted:  # before any is removed
        if not is_anything_left(checked_name(name)):
            raise UsageError(f"there is no lab '{name}'", mend="whichrank lab status")
    _say_removed([name for name in wanted if remove(name)])


@command.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def status(as_json: bool) -> None:
    """Which labs there are."""
    import msgspec

    from whichrank.testbed.lab.box import labs, occupants
    from whichrank.testbed.lab.userspace import refuse_without_root

    refuse_without_root()
    found = [(lab, occupants(lab)) for lab in labs()]
    if as_json:
        plain: list[dict[str, Any]] = [msgspec.to_builtins(lab) | {"processes": count} for lab, count in found]
        click.echo(msgspec.json.format(msgspec.json.encode({"labs": plain}), indent=2))
        return
    if not found:
        click.echo("There is no lab.")
        return
    click.echo("name         nodes leaves spines ports       rate  processes  up since (UTC)")
    for lab, count in found:
        click.echo(_line(lab, count))


def _line(lab: LabFile, count: int) -> str:
    note = "  abandoned: whichrank lab down --all" if lab.is_abandoned else ""
    since = lab.made.astimezone(UTC)
    day = "" if since.date() == datetime.now(UTC).date() else f"{since:%Y-%m-%d} "
    return (
        f"{lab.name:<12} {lab.nodes:>5} {lab.leaves:>6} {lab.spines:>6} {lab.ports:>5} {lab.rate:>10} {count:>10}"
        f"  {day}{since:%H:%M:%S}{note}"
    )


def _say_removed(names: list[str]) -> None:
    click.echo(f"removed: {', '.join(names)}" if names else "There was nothing to remove.", err=True)


command.add_command(run)
command.add_command(score)
command.add_command(list_all)
