"""Files of a folder that somebody else made: nothing outside the folder is read, and no more than a bound.

A link that leads out of the folder would show whatever it leads to (a password file, another user's key) to a model.
"""

from __future__ import annotations

import zlib
from pathlib import Path

from toolorchestra.envs.base.errors import ConfigError

MOST_FILE_BYTES = 32 << 20
"""Of one file, unpacked; the largest of a shipped domain has 2 MB."""
_PIECE_BYTES = 1 << 20


def inside(folder: Path, path: Path) -> Path:
    """The file's path. Raises ConfigError where it leads out of the folder by a link."""
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ConfigError(f"{path} is a link that leads out of {folder}, and is not read; put the file itself there")
    return path


def read_inside(folder: Path, path: Path, most_bytes: int = MOST_FILE_BYTES) -> bytes:
    """The bytes of a file inside a folder. A path that leads out of the folder is refused."""
    with inside(folder, path).open("rb") as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise ConfigError(f"{path} is larger than {most_bytes} bytes, the most that is read of a file of a folder")
    return data


def unpacked(data: bytes, where: str, most_bytes: int = MOST_FILE_BYTES) -> bytes:
    """A gzip file's content. Raises ConfigError where it is too large, zlib.error or EOFError where it is none."""
    pieces: list[bytes] = []
    room = most_bytes
    while data:
        member = zlib.decompressobj(zlib.MAX_WBITS | 16)
        while not member.eof:
            piece = member.decompress(data, _PIECE_BYTES)
            data = member.unconsumed_tail or member.unused_data
            pieces.append(piece)
            room -= len(piece)
            if room < 0:
                raise ConfigError(f"{where} unpacks to more than {most_bytes} bytes, the most that is read")
            if not (piece or data or member.eof):
                raise EOFError("it ends before its end")
        data = data.lstrip(b"\0")  # what pads a file, as gzip has it
    return b"".join(pieces)
