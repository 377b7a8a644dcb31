"""A preset as a text to paste: it survives a chat, and whatever else is pasted ends in a PresetError of one line."""

from __future__ import annotations

import base64
import contextlib
import tracemalloc
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradstudio.core import files, preset_as_text, presets
from gradstudio.core.presets import Preset, PresetError

EXPLOSION = presets.read(files.PRESETS / "rnn-explosion.toml")
TEXT = preset_as_text.to_text(EXPLOSION)


def packed(data: bytes, checksum: int | None = None) -> str:
    head = (zlib.crc32(data) if checksum is None else checksum).to_bytes(4, "big")
    return preset_as_text.PREFIX + base64.urlsafe_b64encode(head + zlib.compress(data)).decode().rstrip("=")


def refused(text: str) -> str:
    with pytest.raises(PresetError) as raised:
        preset_as_text.from_text(text)
    assert str(raised.value).isprintable() and len(str(raised.value)) < 500
    return str(raised.value)


@pytest.mark.parametrize("path", sorted(files.PRESETS.glob("*.toml")), ids=lambda path: path.stem)
def test_a_bundled_preset_comes_back(path: Path) -> None:
    preset = presets.read(path)
    back = preset_as_text.from_text(preset_as_text.to_text(preset))
    assert presets.to_toml(back) == presets.to_toml(preset)
    assert not back.bundled and back.path is None


@pytest.mark.parametrize(
    "chat",
    [
        lambda text: f"  {text}\n",
        lambda text: f"`{text}`",
        lambda text: f"```\n{text}\n```",
        lambda text: "\r\n".join(text[start : start + 40] for start in range(0, len(text), 40)),
        lambda text: "\u200b".join(text[start : start + 7] for start in range(0, len(text), 7)) + "\ufeff",
        lambda text: " ".join(text),
    ],
)
def test_what_a_chat_does_to_a_text_does_not_count(chat) -> None:
    assert preset_as_text.from_text(chat(TEXT)) == preset_as_text.from_text(TEXT)


@given(st.data())
def test_a_changed_character_is_noticed_or_changes_nothing(data: st.DataObject) -> None:
    """A text that stands twice in the preset may be copied from either place."""
    place = data.draw(st.integers(0, len(TEXT) - 1))
    letter = data.draw(
        st.characters(exclude_categories=["Cs", "Cf", "Zs", "Zl", "Zp", "Cc"]).filter(
            lambda drawn: drawn != TEXT[place]
        )
    )
    text = TEXT[:place] + letter + TEXT[place + 1 :] + ("A" if letter in "`'\"<>“”" else "")
    try:
        assert preset_as_text.from_text(text) == preset_as_text.from_text(TEXT)
    except PresetError:
        refused(text)


@given(st.integers(0, len(TEXT) - 1), st.integers(1, 40))
def test_a_missing_part_is_noticed(place: int, count: int) -> None:
    refused(TEXT[:place] + TEXT[place + count :])


@settings(max_examples=300)
@given(
    st.text()
    | st.text().map(lambda text: preset_as_text.PREFIX + text)
    | st.binary().map(packed)
    | st.text().map(lambda text: packed(text.encode("utf-8", "replace")))
)
def test_any_text_is_a_preset_or_refused(text: str) -> None:
    with contextlib.suppress(PresetError):
        assert isinstance(preset_as_text.from_text(text), Preset)


def test_a_bomb_is_not_unpacked() -> None:
    text = packed(b"\0" * 200_000_000)
    assert len(text) < 300_000
    tracemalloc.start()
    assert "more than 1000 kB" in refused(text)
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "does not begin with gradstudio:1:"),
        ("hello", "does not begin with gradstudio:1:"),
        ("gradstudio:2:abc", "version 2, which this GradStudio does not know"),
        ("gradstudio:1:", "missing or changed"),
        (TEXT + "?", "the character '?'"),
        (TEXT[:-5], "missing or changed"),
        (TEXT + "AAAA", "missing or changed"),
        (packed(b"title = 'x'", 1), "missing or changed"),
        (packed(b"\xff\xfe"), "not hold UTF-8"),
        (packed(b"schema = 1\n[optimizer]\nlr = nan"), "line 3: optimizer.lr"),
        (packed(b"schema = 1\n[optimizer]\nrate = 1"), "unknown knob"),
        (packed(b"[" * 100_000), "not valid TOML"),
        ("x" * 3_000_000, "too many"),
    ],
)
def test_an_error_says_what_is_wrong(text: str, part: str) -> None:
    assert part in refused(text)


def test_a_title_of_signs_only_still_gives_an_id() -> None:
    odd = Preset(id="a", title="!!!", experiment=EXPLOSION.experiment)
    assert preset_as_text.from_text(preset_as_text.to_text(odd)).id == "shared"


def test_what_is_too_large_for_a_file_is_too_large_to_share() -> None:
    with pytest.raises(PresetError, match="cannot be shared"):
        preset_as_text.to_text(Preset(id="a", title="x" * 1_100_000, experiment=EXPLOSION.experiment))
