"""`whichrank replay`."""

from __future__ import annotations

from pathlib import Path

import click

from whichrank.surface.terminal import show, show_json, talk


@click.command(name="replay")
@click.argument("path", metavar="DIR|TAPE", type=click.Path(path_type=Path))
@click.option("--methods", default="", help="Methods of others instead, with commas between, or 'all'.")
@click.option("--json", "as_json", is_flag=True, help="Print the incidents as one JSON array.")
def command(path: Path, methods: str, as_json: bool) -> int:
    """Go through the recording of a run again, and say what whichrank finds in it now.

    `whichrank run --record` keeps one in DIR. With the whichrank that recorded it, the verdict is the one that it gave
    live; stderr says whether it is. Exit codes as in `why`: 0 no alert, 3 a hang or failure, 4 a slowdown, 5 no alert
    but the recording is cut.

    With --methods the methods that `lab score` compares go through it, with the patience of the run, and all that they
    say is printed; the exit code is 0.
    """
    if methods:
        return _listen(path, methods, as_json)
    from whichrank.server.incidents_file import FILE_NAME, read_incidents
    from whichrank.server.replay import replay, tape_at
    from whichrank.surface.cli.why import EXIT_INCOMPLETE, exit_code_of, print_json, print_text
    from whichrank.surface.pipe import reader_may_leave

    replayed = replay(path)
    with reader_may_leave():
        if as_json:
            print_json(replayed.incidents)
        elif replayed.incidents:
            print_text(replayed.incidents)
        else:
            show(f"No incident in {tape_at(path)}.")
    live = tape_at(path).with_name(FILE_NAME)
    if live.exists():
        same = read_incidents(live).incidents == replayed.incidents
        talk("as it was said live" if same else f"not as it was said live, in {live}")
    if not replayed.is_whole:
        talk("the recording ends within an entry; what is whole was used")
    return exit_code_of(replayed.incidents) or (0 if replayed.is_whole else EXIT_INCOMPLETE)


def _listen(path: Path, methods: str, as_json: bool) -> int:
    """What methods of others find in it."""
    import msgspec

    from whichrank.errors import UsageError
    from whichrank.server.replay import settings_of, tape_at
    from whichrank.surface.pipe import reader_may_leave
    from whichrank.testbed.bench.methods.method import Limits
    from whichrank.testbed.bench.methods.score import METHODS, listen
    from whichrank.testbed.bench.methods.tables import TITLES
    from whichrank.wire.tape import Tape

    names = list(METHODS) if methods == "all" else [name.strip() for name in methods.split(",") if name.strip()]
    for name in names:
        if name not in METHODS:
            raise UsageError(f"there is no method '{name}' for recordings", mend=f"--methods {','.join(METHODS)}")
    tape = Tape(tape_at(path))
    settings = settings_of(tape, path)
    begun_s = next((entry.now_s for entry in tape), 0.0)
    said = listen(tape_at(path), names, Limits(settings.hang_timeout_s, settings.slow_window_s))
    said = {
        name: [msgspec.structs.replace(w, at_s=round(w.at_s - begun_s, 3)) for w in of] for name, of in said.items()
    }
    with reader_may_leave():
        if as_json:
            show_json(msgspec.json.encode(said))
            return 0
        for name, words in said.items():
            for word in words:
                named = [f"rank {rank}" for rank in word.ranks] + [f"link {a} to {b}" for a, b in word.links]
                what = f"{word.kind}{f' ({word.fault_class})' if word.fault_class else ''}"
                show(f"{TITLES[name]}: after {word.at_s:.1f} s {what}: {', '.join(named) or 'names nobody'}")
            if not words:
                show(f"{TITLES[name]}: says nothing")
    return 0
