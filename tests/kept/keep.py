"""Keeps tapes for `test_kept_verdicts`, or writes the verdicts of those that are kept anew.

    python tests/kept/keep.py                    the verdicts of all kept tapes, after a change of rules that is meant
    python tests/kept/keep.py NAME=TAPE ...      keep these tapes, of `whichrank run --record`, as well
    python tests/kept/keep.py --hide FOLDER ...  and nothing of what a folder is called

The folder of this checkout, and those that are to be hidden, become `/home/user...` of the same length on the tape.
"""

from __future__ import annotations

import argparse
import json
import lzma
import tempfile
from pathlib import Path

from verdicts import HERE, VERDICTS, name_of, said_of

from whichrank.wire.envelope import decode, encode
from whichrank.wire.tape import Tape, TapeWriter

ANOTHER = b"/home/user"


def plain(path: Path, hidden: list[bytes]) -> bytes:
    """The tape with another name for each of these folders."""
    tape = Tape(path)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        writer = TapeWriter(copy, tape.head)
        for entry in tape:
            batch = None
            if entry.batch is not None:
                content = encode(entry.batch)
                for folder_of_ours in hidden:
                    other = ANOTHER.ljust(len(folder_of_ours), b"_")[: len(folder_of_ours)]
                    content = content.replace(folder_of_ours, other)
                batch = decode(content)
            writer.write(entry.kind, entry.now_s, batch)
        writer.close()
        return copy.read_bytes()


def main() -> None:
    """Keep, and write the verdicts."""
    (HERE / "tapes").mkdir(exist_ok=True)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hide", action="append", default=[], metavar="FOLDER")
    parser.add_argument("tapes", nargs="*", metavar="NAME=TAPE")
    options = parser.parse_args()
    hidden = [folder.encode() for folder in (str(HERE.parents[1]), *options.hide)]
    for argument in options.tapes:
        name, _, tape = argument.partition("=")
        packed = lzma.compress(plain(Path(tape), hidden), preset=9 | lzma.PRESET_EXTREME)
        (HERE / "tapes" / f"{name}.tape.xz").write_bytes(packed)
    lines = []
    for path in sorted((HERE / "tapes").glob("*.tape.xz")):
        said = said_of(path)
        lines.append(json.dumps({"tape": name_of(path), "said": said}, separators=(",", ":")) + "\n")
        print(f"{name_of(path)}: {len(said)} changes, {path.stat().st_size >> 10} KiB")
    VERDICTS.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
