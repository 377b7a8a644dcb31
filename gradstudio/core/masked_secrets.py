"""Secrets in a command line: passwords, tokens and keys are masked before anything is stored."""

from __future__ import annotations

import re
from collections.abc import Iterable

MASK = "***"
# Names of secrets, by the last of their words, such as --hf-token, db.password, clientSecret.
_ENDINGS = (
    "token", "password", "passwd", "passphrase", "secret", "credential", "credentials", "apikey", "accesskey",
    "secretkey", "privatekey", "authkey", "pwd",
)  # fmt: skip
_WORDS = ("pass", "pw", "auth", "authorization", "bearer", "cookie", "jwt", "pat")
_KEYS = (  # words before "key"
    "api", "access", "secret", "private", "auth", "account", "client", "service", "encryption", "license", "wandb",
)  # fmt: skip
_OPTION = re.compile(r"[-+]*([\w./-]*\w)(?:([=:])(.*))?", re.DOTALL)
_WITHIN = re.compile(
    r"""\b([A-Za-z][\w.-]{0,60})(["']?\s?[=:]\s?["']?)(?:(?:bearer|basic|token)\s)?([^\s"'&;,{}]+)""", re.IGNORECASE
)
_SCHEME = re.compile(r"\b(bearer|basic)\s+[^\s\"',;]+", re.I)
_ADDRESS = re.compile(r"(://[^\s/:@]*:)[^\s/@]+(?=@)")
# The names that some services use, wherever they occur.
_FORMS = re.compile(
    r"\b(?:hf_\w{16,}|gh[opsur]_\w{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|sk-[\w-]{16,}|xox[abeprs]-[\w-]{8,}"
    r"|(?:AKIA|ASIA)[0-9A-Z]{16}|AIza[\w-]{30,}|eyJ[\w-]{1,400}\.[\w-]{1,4000}\.[\w-]*)"
)


def mask_secrets(arguments: Iterable[str]) -> tuple[str, ...]:
    """Return the arguments of a command line with MASK in place of each secret: `--token X`, `--password=X`, `KEY=X`,
    `Authorization: Bearer X`, a password in an address, and anything with the form of a well-known service's token."""
    masked: list[str] = []
    follows = False  # whether the previous argument is an option and this one is its value
    for argument in arguments:
        option = _OPTION.fullmatch(argument)
        name, sign, value = option.groups() if option else ("", None, None)
        if follows and not argument.startswith("--") and not _is_flag(argument):
            masked.append(MASK)
            follows = False
            continue
        follows = argument.startswith("-") and not sign and _is_secret(name)
        if sign == "=" and _is_secret(name) and not _is_count(value):
            masked.append(f"{argument[: -len(value)] if value else argument}{MASK}")
        else:
            masked.append(_within(argument))
    return tuple(masked)


def _within(text: str) -> str:
    """Return a text with each secret masked that is recognized by its own name or form."""
    text = _FORMS.sub(MASK, _SCHEME.sub(rf"\1 {MASK}", _ADDRESS.sub(rf"\1{MASK}", text)))
    return _WITHIN.sub(lambda found: f"{found[1]}{found[2]}{MASK}" if _hides(found) else found[0], text)


def _hides(match: re.Match[str]) -> bool:
    return _is_secret(match[1]) and not _is_count(match[3])


def _is_secret(name: str) -> bool:
    """Return whether a name denotes a secret."""
    words = re.split(r"[-_./]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name))
    last, before = words[-1].lower(), words[-2].lower() if len(words) > 1 else ""
    if last == "key":
        return len(words) == 1 or name.isupper() or before in _KEYS
    return last in _WORDS or last.endswith(_ENDINGS)


def _is_count(value: str | None) -> bool:
    """Return whether a value is a small number or a switch, as in `max_token=512`, which need not be hidden."""
    return value is not None and re.fullmatch(r"\d{1,4}|true|false|none|", value, re.I) is not None


def _is_flag(argument: str) -> bool:
    return re.fullmatch(r"-[A-Za-z]", argument) is not None
