"""`gradstudio schema`: what an editor completes a file by allows every file that is there."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from typing import Any

import pytest

from gradstudio.core import files
from gradstudio.core.experiment import KNOBS
from gradstudio.core.rules import makers


def schema_of(gradstudio: Callable, kind: str) -> dict[str, Any]:
    answer = gradstudio("schema", kind)
    assert (answer.code, answer.err) == (0, "")
    return json.loads(answer.out)


def allows(schema: dict[str, Any], part: dict[str, Any], value: Any) -> bool:
    """Whether a value may be there, as far as these schemas say anything."""
    if "$ref" in part:
        return allows(schema, schema["$defs"][part["$ref"].rpartition("/")[2]], value)
    if "anyOf" in part:
        return any(allows(schema, each, value) for each in part["anyOf"])
    if isinstance(value, dict):
        known = part.get("properties", {})
        free = part.get("additionalProperties", True) is not False
        required = set(part.get("required", ())) <= value.keys()
        return required and all(allows(schema, known[k], v) if k in known else free for k, v in value.items())
    if isinstance(value, list):
        return part.get("type") == "array" and all(allows(schema, part.get("items", {}), each) for each in value)
    kinds = {bool: ("boolean",), int: ("integer", "number"), float: ("number",), str: ("string",)}[type(value)]
    is_kind = part.get("type", kinds[0]) in kinds
    in_range = isinstance(value, str) or part.get("minimum", value) <= value <= part.get("maximum", value)
    return is_kind and in_range and value in part.get("enum", [value])


def test_every_preset_is_allowed_and_a_slip_is_not(gradstudio: Callable) -> None:
    schema = schema_of(gradstudio, "preset")
    for path in files.PRESETS.glob("*.toml"):
        table = tomllib.loads(path.read_text())
        assert allows(schema, schema, table), path
    assert not allows(schema, schema, {"optimizer": {"learning_rate": 0.1}})
    assert not allows(schema, schema, {"optimizer": {"kind": "sgdd"}})
    told = schema["$defs"]["Optimizer"]["properties"]["lr"]
    assert told["description"] == KNOBS["optimizer.lr"].help and "slider" not in told


def test_thresholds_and_worksheets_have_one(gradstudio: Callable) -> None:
    rules = schema_of(gradstudio, "studio-settings")
    assert rules["properties"].keys() == makers().keys()
    assert allows(rules, rules, {"exploding_gradient": {"norm": 300.0}})
    assert not allows(rules, rules, {"exploding_gradient": {"nrom": 300.0}})
    assert {"exercise", "name", "seed"} <= schema_of(gradstudio, "worksheet")["properties"].keys()
    refused = gradstudio("schema", "window")
    assert refused.code == 2 and "allowed: preset, studio-settings, worksheet" in refused.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_can_be_shown_how_to_complete(gradstudio: Callable, shell: str) -> None:
    answer = gradstudio("--show-completion", shell)
    assert answer.code == 0 and "GRADSTUDIO_COMPLETE" in answer.out
