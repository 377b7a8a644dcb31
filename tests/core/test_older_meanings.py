"""A preset of an older schema is read as it stands, and each run says what it now means otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradstudio.core import presets
from gradstudio.core.events import Change
from gradstudio.core.older_meanings import differences
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_writer import RunWriter

FALLS = "[schedule]\nkind = 'cosine'\nwarmup_steps = 20\n"
GATHERS = "[accumulation]\nsteps = 4\n"


def notices(text: str, *changes: Change) -> list[str]:
    preset = presets.parse(text, Path("old.toml"))
    run = Run(preset, preset.experiment, (*preset.timeline, *changes))
    RunWriter(run).begin((), {})
    return [event.text for event in run.events if event.kind == "notice"]


@pytest.mark.parametrize(("knobs", "told"), [
    (FALLS, ["falling schedule begins after the warmup"]), (GATHERS, ["parts of one large batch"]),
    (FALLS + GATHERS, ["falling schedule", "large batch"]),
    ("[schedule]\nkind = 'cosine'\n", []), ("[schedule]\nwarmup_steps = 20\n", []), ("", []),
    ("[schedule]\nwarmup_steps = 5\n[[timeline]]\nstep = 3\nknob = 'schedule.kind'\nvalue = 'linear'\n", ["falling"]),
])  # fmt: skip
@pytest.mark.parametrize("schema", ["schema = 1\n", ""])
def test_what_differs_is_said(schema: str, knobs: str, told: list[str]) -> None:
    found = notices(schema + knobs)
    assert len(found) == len(told)
    for text, part in zip(found, told, strict=True):
        assert text.startswith("This preset is of schema 1.") and part in text


def test_a_change_that_a_person_plans_counts_too() -> None:
    assert len(notices("schema = 1\n", Change(3, "accumulation.steps", 2))) == 1


def test_what_is_written_today_means_what_it_says() -> None:
    assert notices("schema = 2\n" + FALLS + GATHERS) == []
    old = presets.parse("schema = 1\n" + FALLS, Path("old.toml"))
    assert presets.parse(presets.to_toml(old), Path("old.toml")) == old.model_copy(update={"written_in": 2})
    assert differences(2, old.experiment, ()) == [] != differences(1, old.experiment, ())


@pytest.mark.parametrize("path", sorted(presets.files.PRESETS.glob("*.toml")), ids=lambda path: path.stem)
def test_every_bundled_preset_is_of_today(path: Path) -> None:
    assert presets.read(path).written_in == presets.SCHEMA


def test_a_preset_with_a_value_that_had_another_name() -> None:
    text = "schema = 1\n[clipping]\nkind = 'per_layer'\n[[timeline]]\nstep = 3\nknob = 'clipping.kind'\nvalue = '{}'\n"
    for old, new in (("norm", "norm"), ("per_layer", "per_tensor")):
        preset = presets.parse(text.format(old), Path("old.toml"))
        assert preset.experiment.clipping.kind == "per_tensor"
        assert preset.timeline == (Change(3, "clipping.kind", new),)
        assert "per_layer" not in presets.to_toml(preset)
