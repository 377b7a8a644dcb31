"""`gradstudio schema` prints the JSON schema of a file that the user writes, so that an editor can complete it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from gradstudio.commands.terminal import WrongRequest, say_json

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
# the part that a schema cannot express
_OF_THE_FORM = ("group", "label", "live", "logarithmic", "slider", "unit", "when")


def schema(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="preset|studio-settings|worksheet",
            help="A preset or experiment.toml; rules.toml with your thresholds; the worksheet of an exercise.",
        ),
    ] = "preset",
) -> None:
    """Print the JSON schema of a file that you write, for an editor that completes it."""
    kinds: dict[str, Callable[[], dict[str, Any]]] = {
        "preset": _preset, "studio-settings": _thresholds, "worksheet": _worksheet,
    }  # fmt: skip
    if kind not in kinds:
        raise WrongRequest(f"{kind[:60]} has no schema; allowed: {', '.join(kinds)}")
    say_json({"$schema": _DRAFT, **_plain(kinds[kind]())})


def _preset() -> dict[str, Any]:
    from gradstudio.core.experiment import Experiment
    from gradstudio.core.presets import FileHead

    about, knobs = FileHead.model_json_schema(by_alias=True), Experiment.model_json_schema()
    together = {name: {**knobs.get(name, {}), **about.get(name, {})} for name in ("$defs", "properties")}
    return {**about, **together, "title": "Preset of GradStudio"}


def _thresholds() -> dict[str, Any]:
    from gradstudio.core import rule_thresholds
    from gradstudio.core.rules import makers

    def section(rule: str) -> dict[str, Any]:
        numbers = {
            name: {"type": "integer", "minimum": 1, "default": value}
            if isinstance(value, int)
            else {"type": "number", "minimum": 0, "default": value}
            for name, value in rule_thresholds.thresholds(rule).items()
        }
        return {"type": "object", "properties": numbers, "additionalProperties": False}

    rules = {rule: section(rule) for rule in makers()}
    return {
        "title": "Thresholds of GradStudio's rules", "type": "object", "properties": rules,
        "additionalProperties": False,
    }  # fmt: skip


def _worksheet() -> dict[str, Any]:
    from gradstudio.session.course.worksheet import Worksheet

    return Worksheet.model_json_schema(by_alias=True)


def _plain(schema: Any) -> Any:
    """Return a schema without the parts that only the form reads."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    is_knob = schema.keys() >= {*_OF_THE_FORM}
    return {key: _plain(value) for key, value in schema.items() if not (is_knob and key in _OF_THE_FORM)}
