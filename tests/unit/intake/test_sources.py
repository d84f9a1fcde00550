"""Files, folders and archives, whatever they are called."""

from __future__ import annotations

import collections
import gzip
import io
import lzma
import os
import tarfile
import zipfile
from pathlib import Path

import pytest

from whichrank.errors import IncompleteDataError
from whichrank.intake import sources
from whichrank.intake.sources import Refused, Source, files_in, opened


def within(path: Path) -> dict[str, bytes | str]:
    """What is in a file, by name below the folder: bytes, or why it was refused."""
    found: dict[str, bytes | str] = {}
    with opened(path) as parts:
        for part in parts:
            name = part.name.removeprefix(str(path.parent) + "/")
            found[name] = part.why.what if isinstance(part, Refused) else part.stream.read()
    return found


def tar_of(files: dict[str, bytes], mode: str = "w") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def test_a_plain_file_is_itself(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 100_000)
    assert within(tmp_path / "a") == {"a": b"x" * 100_000}


def test_the_head_stays_in_the_stream(tmp_path: Path) -> None:
    data = bytes(range(256)) * 1000
    (tmp_path / "a").write_bytes(gzip.compress(data))
    with opened(tmp_path / "a") as parts:
        source = next(parts)
        assert isinstance(source, Source)
        assert source.head == data[: sources.HEAD_BYTES]
        assert source.stream.read() == data


def test_compression_and_archives_are_known_by_content(tmp_path: Path) -> None:
    # GIVEN an archive in which a file is compressed, itself compressed, all with names that say nothing
    inner = {"dir/a": b"one", "dir/b": gzip.compress(b"two"), "c": lzma.compress(b"three"), "d": b""}
    for name, data in (("plain", tar_of(inner)), ("gz", tar_of(inner, "w:gz")), ("xz", tar_of(inner, "w:xz"))):
        path = tmp_path / name
        path.write_bytes(data)
        # WHEN it is opened THEN its parts come out unpacked
        assert within(path) == {
            f"{name}:dir/a": b"one", f"{name}:dir/b": b"two", f"{name}:c": b"three", f"{name}:d": b"",
        }  # fmt: skip


def test_zstd_is_unpacked_or_said_to_need_a_library(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard", reason="zstandard is an extra")
    (tmp_path / "a").write_bytes(zstandard.ZstdCompressor().compress(b"four" * 1000))
    assert within(tmp_path / "a") == {"a": b"four" * 1000}


def test_archives_within_archives_have_an_end(tmp_path: Path) -> None:
    data = b"deep"
    for depth in range(10):
        data = tar_of({f"level{depth}": data})
    (tmp_path / "a.tar").write_bytes(data)
    (reason,) = within(tmp_path / "a.tar").values()
    assert reason == "it is an archive within 3 archives"


def test_compression_within_compression_has_an_end(tmp_path: Path) -> None:
    data = b"deep"
    for _ in range(10):
        data = gzip.compress(data)
    (tmp_path / "a.gz").write_bytes(data)
    assert within(tmp_path / "a.gz") == {"a.gz": "it is compressed more than 3 times"}


def test_a_bomb_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a file that unpacks to a thousand times its size
    monkeypatch.setattr(sources, "FREE_BYTES", 1 << 16)
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(bytes(64 << 20)))
    # WHEN it is read THEN that ends early, with one sentence
    with opened(tmp_path / "bomb.gz") as parts:
        source = next(parts)
        assert isinstance(source, Source)
        with pytest.raises(sources.FormatError, match="more than 200 times its size"):
            collections.deque(iter(lambda: source.stream.read(1 << 20), b""), maxlen=0)


def zip_of(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def test_a_zip_archive_is_opened_also_within_another_one(tmp_path: Path) -> None:
    inner = zip_of({"b.log": b"two"})
    (tmp_path / "a.zip").write_bytes(zip_of({"x/a.log": b"one", "../../up.log": b"three", "in.zip": inner}))
    (tmp_path / "t").write_bytes(tar_of({"in.zip": inner}))
    assert within(tmp_path / "a.zip") == {
        "a.zip:x/a.log": b"one", "a.zip:../../up.log": b"three", "a.zip:in.zip:b.log": b"two",
    }  # fmt: skip
    assert within(tmp_path / "t") == {"t:in.zip:b.log": b"two"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.zip", "t"]


def test_a_bomb_in_a_zip_archive_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "FREE_BYTES", 1 << 16)
    (tmp_path / "bomb.zip").write_bytes(zip_of({"a": bytes(64 << 20)}))
    with opened(tmp_path / "bomb.zip") as parts:
        source = next(parts)
        assert isinstance(source, Source)
        with pytest.raises(sources.FormatError, match="more than 200 times its size"):
            collections.deque(iter(lambda: source.stream.read(1 << 20), b""), maxlen=0)


def test_a_zip_archive_that_is_encrypted_or_damaged_is_said_to_be(tmp_path: Path) -> None:
    whole = bytearray(zip_of({"a.log": b"one" * 100}))
    (tmp_path / "cut.zip").write_bytes(whole[:60])
    assert str(within(tmp_path / "cut.zip")["cut.zip"]).startswith("it is a damaged archive")
    for at in (whole.index(b"PK\x03\x04") + 6, whole.index(b"PK\x01\x02") + 8):
        whole[at] |= 1
    (tmp_path / "shut.zip").write_bytes(whole)
    assert within(tmp_path / "shut.zip") == {"shut.zip:a.log": "it is encrypted"}


@pytest.mark.parametrize("kept", [0.2, 0.5, 0.95])
def test_damaged_archives_are_said_to_be(kept: float, tmp_path: Path) -> None:
    data = tar_of({f"f{n}": bytes([n]) * 5000 for n in range(20)}, "w:gz")
    (tmp_path / "a").write_bytes(data[: int(kept * len(data))])
    found = list(within_whole(tmp_path / "a"))
    assert any(isinstance(part, Refused) for part in found)


def test_a_part_that_claims_more_than_there_is_ends_the_archive(tmp_path: Path) -> None:
    # GIVEN archives with a part of many gigabytes, a file or something else, whose bytes are not there
    for kind in (tarfile.REGTYPE, b"?"):
        for pack in (bytes, gzip.compress):
            info = tarfile.TarInfo("huge")
            info.size, info.type = 1 << 34, kind
            data = tar_of({"small": b"x"})[: 2 * tarfile.BLOCKSIZE] + info.tobuf(tarfile.GNU_FORMAT) + bytes(1024)
            (tmp_path / "a").write_bytes(pack(data))
            # WHEN it is opened THEN what stands before is read, and nothing is waited for
            found = within(tmp_path / "a")
            assert list(found) == ["a:small", "a"]
            assert found["a"] == "it is a damaged archive: 'huge' in it is larger than what is left of it"


def within_whole(path: Path) -> list[Source | Refused]:
    with opened(path) as parts:
        return list(parts)


def test_folders_are_walked_in_order(tmp_path: Path) -> None:
    for name in ("trace_10", "trace_2", ".git/x", "sub/trace_1", ".hidden"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "sub" / "trace_1")
    found = [str(path.relative_to(tmp_path)) for path in files_in([tmp_path])]
    assert found == ["link", "sub/trace_1", "trace_2", "trace_10"]


def test_what_is_not_there_is_said() -> None:
    with pytest.raises(IncompleteDataError, match="'/nowhere/at/all' is not there"):
        files_in([Path("/nowhere/at/all")])


def test_links_are_not_followed_out_of_a_folder_and_a_pipe_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "outside").write_bytes(b"x")
    folder = tmp_path / "dumps"
    folder.mkdir()
    (folder / "a").write_bytes(b"x")
    (folder / "within").symlink_to(folder / "a")
    (folder / "away").symlink_to(tmp_path / "outside")
    assert [path.name for path in files_in([folder])] == ["a", "within"]
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(IncompleteDataError, match="neither a file nor a folder"):
        files_in([tmp_path / "pipe"])
