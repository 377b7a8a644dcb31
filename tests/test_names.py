"""Names are those of the field: a function that does something is a verb, one that gives something a noun or a question,
a callback is on_x."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "gradstudio"

# A bare participle says neither what a function does nor what it gives.
BANNED = re.compile(
    r"arrived|asked|begun|born|called|changed|clipped|computed|counted|drawn|elsewhere|found|given|gone|"
    r"guessed|handed|heard|hearing|held|joined|judged|kept|known|laid|learned|left|lent|listed|looker|lost|"
    r"made|mapped|measured|met|moved|named|passed|produced|promised|quoted|ranked|reached|refused|requested|"
    r"said|seen|sent|shown|spelled|started|stepped|taken|this|told|touched|trained|turned|uprights?|wanted|"
    r"watched|worn|written|zeroed"
)
FIRST_WORDS = frozenset({"hear", "heard"})  # a callback is on_x, a hook into torch is hook_x


def names() -> Iterator[tuple[str, str]]:
    """Yield file and name of each function, method and class."""
    for file in sorted(PACKAGE.rglob("*.py")):
        for name in re.findall(r"^ *(?:def|class) (\w+)", file.read_text(encoding="utf-8"), re.MULTILINE):
            yield file.relative_to(PACKAGE).as_posix(), name


def dialect(name: str) -> bool:
    """Return whether a name is of the words that this program does not use."""
    words = name.strip("_").lower()
    return BANNED.fullmatch(words) is not None or words.split("_")[0] in FIRST_WORDS


def test_names_are_nouns_verbs_and_questions() -> None:
    assert [f"{file}: {name}" for file, name in names() if dialect(name)] == []


def test_a_name_of_the_dialect_would_be_found() -> None:
    assert all(map(dialect, ("_told", "Kept", "hear_clipping", "found")))
    assert not any(map(dialect, ("find", "is_known", "on_clip", "kept_bytes", "selected", "read")))
