"""Numbers and names as text: three significant digits (0.82, 39, 3.9e4), percent, plurals, times, short names."""

from __future__ import annotations

import math
import re
import signal
from collections.abc import Iterable

LONGEST_TITLE = 200  # characters of a run's title, wherever it is created
LONGEST_LINE = 300  # characters of an error, on a terminal or in the message bar


def number(value: float | None, digits: int = 3) -> str:
    """Return a number with `digits` significant digits: 0.82, 39, 3.9e4, 6e-8, NaN, Inf; a dash for None."""
    if value is None:
        return "–"
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e4:
        text = f"{value:.{digits}g}"
        return f"{value:.0f}" if "e" in text else text
    mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
    return f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}e{int(exponent)}"


def percent(share: float | None) -> str:
    """Return a share as '93.2 %'; NaN stays NaN, and None is a dash."""
    return number(share) if share is None or not math.isfinite(share) else f"{100 * share:.3g} %"


def strong(html: str) -> str:
    """Return rich text in the boldest weight that the program's font has. Qt would smear letters for `<b>`."""
    return f"<span style='font-weight: 600'>{html}</span>"


def one_line(text: str) -> str:
    """Return a text on one line without control characters, fit for a terminal or a label."""
    return "".join(letter if letter.isprintable() else " " for letter in text).strip()


def first_line(fault: BaseException, longest: int) -> str:
    """Return the first line of an exception's message, "" if it is empty: a user's own class may fail even at that."""
    try:
        return shorten(one_line(str(fault).strip().partition("\n")[0]), longest)
    except BaseException:
        return ""


# Characters that count as printable but are drawn as nothing: Unicode's Default_Ignorable_Code_Point except controls,
# such as variation selectors, each of which can carry a byte of hidden code; and letters that are blank.
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef"
    "\u2800\U00016fe4\U0001d159]"
)


def _is_seen(letter: str) -> bool:
    return letter.isprintable() and not _BLANK.match(letter)


def reveal(text: str) -> str:
    """Return a text as Python reads it, for inspection: characters that are invisible, or that change the visible
    order, are written as their code, such as \\u202e. Lines end where they end for Python."""
    text = text.replace("\r\n", "\n").replace("\r", "\\r\n")
    seen = (letter if _is_seen(letter) or letter in "\n\t" else letter.encode("unicode_escape") for letter in text)
    return "".join(part if isinstance(part, str) else part.decode() for part in seen)


def about_unseen(text: str) -> str:
    """Return, in one sentence, which characters of a text are invisible or change the visible order; "" if none are."""
    lines = text.replace("\r\n", "\n").split("\n")
    unseen = [
        (number, letter)
        for number, line in enumerate(lines, 1)
        for letter in line
        if not _is_seen(letter) and letter != "\t"
    ]
    if not unseen:
        return ""
    number, letter = unseen[0]
    return (
        f"{plural(len(unseen), 'character that cannot be seen is', 'characters that cannot be seen are')} written as "
        f"codes, the first in line {number}: {reveal(letter).strip()}"
    )


def storable(text: str) -> str:
    """Return a text that a file can store: an unpaired surrogate, which is no letter, becomes a question mark."""
    return text.encode("utf-8", "replace").decode()


def shorten(text: str, longest: int) -> str:
    """Return a text in at most `longest` characters, shortened in the middle, as both ends are more informative."""
    return text if len(text) <= longest else f"{text[: longest // 2 - 1]}…{text[-(longest - longest // 2) :]}"


def brief(text: str, longest: int = LONGEST_LINE) -> str:
    """Return a sentence on one line of at most `longest` characters: long names in it are shortened first, each in its
    middle."""
    text = one_line(text)
    for most in (160, 80, 40):
        if len(text) <= longest:
            return text
        text = re.sub(rf"\S{{{most + 1},}}", lambda name, most=most: shorten(name[0], most), text)
    return shorten(text, longest)


_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def power(base: int, exponent: int) -> str:
    """Return a power such as '10⁻³'."""
    return f"{base}{str(exponent).translate(_RAISED)}"


def plural(count: int, one: str, many: str) -> str:
    """Return '1 step' or '3 steps'."""
    return f"{count:,} {one if count == 1 else many}"


def join_with_and(parts: Iterable[int | str]) -> str:
    """Return '2', '0 and 2' or '0, 1 and 2'."""
    *most, last = map(str, parts)
    return f"{', '.join(most)} and {last}" if most else last


def duration(seconds: float) -> str:
    """Return a time as '42 s' or '3 min 5 s'."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def short_name(name: str, longest: int) -> str:
    """Return a layer's dotted name in at most `longest` letters. Parts of a long name are cut to their initials from
    the left ('b.1.a.query.weight' for blocks.1.attention.query.weight); if that is not enough, the middle is left out.
    """
    parts = name.split(".")
    for whole in range(len(parts) - 1, 0, -1):  # parts at the end that stay whole
        shorter = ".".join([*(part if part.isdigit() else part[:1] for part in parts[:-whole]), *parts[-whole:]])
        if len(name) > longest >= len(shorter):
            return shorter
    return shorten(name, longest)


def clean(text: str) -> str:
    """Return the text in valid UTF-8: file names in another encoding are escaped."""
    return text.encode("utf-8", "backslashreplace").decode()


def signal_name(number: int) -> str:
    """Return 'SIGKILL' for 9, and 'signal 40' for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# The folders of a path from the root of a file system on; JSON doubles the backslashes.
_FOLDERS = re.compile(r"""(?<![\w.~:/)\]])/(?:[^\s/"'\\,;:()\[\]<>|]+/)*(?=[\w.~])|\b[A-Za-z]:\\+(?:[^\s\\/"']+\\+)*""")


def without_folders(text: str) -> str:
    """Return a text in which each path that begins at a root has only its last part."""
    return _FOLDERS.sub("", text)
