"""A preset as a short text that can be pasted into a chat, and back.

    gradstudio:1:<base64url of: CRC-32 of the TOML (4 bytes, big-endian), the TOML deflated by zlib>

1 is the version of this form, not of the preset's schema. Line breaks and zero-width characters, which some chats
insert, are ignored."""

from __future__ import annotations

import base64
import binascii
import re
import unicodedata
import zlib
from pathlib import Path

from gradstudio.core.presets import Preset, PresetError, parse, to_toml
from gradstudio.core.strict_toml import LARGEST_FILE

PREFIX = "gradstudio:1:"
LONGEST = 2 * LARGEST_FILE  # characters of a text, line breaks included
_PLACE = Path("the pasted text")  # stands for the file name in errors
_AROUND = "`'\"<>“”"  # quotation marks around a pasted text
_ALPHABET = re.compile(r"[A-Za-z0-9_-]*")


def to_text(preset: Preset) -> str:
    """Return the preset with its timeline and lesson as one line; PresetError if it is too large for a file."""
    data = to_toml(preset).encode()
    if len(data) > LARGEST_FILE:
        raise PresetError(f"the preset is larger than {LARGEST_FILE // 1000} kB and cannot be shared")
    packed = zlib.crc32(data).to_bytes(4, "big") + zlib.compress(data, 9)
    return PREFIX + base64.urlsafe_b64encode(packed).decode().rstrip("=")


def from_text(text: str) -> Preset:
    """Return the preset that `to_text` wrote, with an id derived from its title; PresetError says what is wrong with
    any other text. It is checked as strictly as a file."""
    if len(text) > LONGEST:
        raise _error(f"{len(text):,} characters are too many; allowed: at most {LONGEST:,}")
    text = "".join(letter for letter in text if not letter.isspace() and unicodedata.category(letter) != "Cf").strip(
        _AROUND
    )
    if not text.startswith(PREFIX):
        match = re.match(r"gradstudio:(\w{1,9}):", text)
        why = (
            f"it is of version {match[1]}, which this GradStudio does not know"
            if match
            else f"it does not begin with {PREFIX}"
        )
        raise _error(why)
    toml = _unpack(text.removeprefix(PREFIX))
    preset = parse(toml, _PLACE)
    name = re.sub(r"[\W_]+", "-", preset.title.lower())[:60].strip("-")
    return preset.model_copy(update={"id": name or "shared", "path": None})


def _unpack(body: str) -> str:
    """Return the TOML in the part after the prefix."""
    if not _ALPHABET.fullmatch(body):
        odd = _ALPHABET.sub("", body)[:1]
        raise _error(f"it has the character {odd!r}, which no such text has; copy it once more")
    try:
        packed = base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))
        inflater = zlib.decompressobj()
        data = inflater.decompress(packed[4:], LARGEST_FILE + 1)
    except (binascii.Error, zlib.error):
        raise _error(
            "a part of it is missing or changed; copy it once more, from the first character to the last"
        ) from None
    if len(data) > LARGEST_FILE:
        raise _error(f"it holds more than {LARGEST_FILE // 1000} kB, so no preset")
    whole = inflater.eof and not inflater.unused_data and base64.urlsafe_b64encode(packed).decode().rstrip("=") == body
    if not whole or zlib.crc32(data) != int.from_bytes(packed[:4], "big"):
        raise _error("a part of it is missing or changed; copy it once more, from the first character to the last")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise _error("it does not hold UTF-8 text") from None


def _error(why: str) -> PresetError:
    return PresetError(f"{_PLACE} is no preset to be shared: {why}")
