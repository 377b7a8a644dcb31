"""Every bundled preset has a picture of its own runs, and a place in the suggested order."""

from __future__ import annotations

from pathlib import Path

from gradstudio.core import files, gallery, presets

PRESETS = [presets.read(path) for path in sorted(files.PRESETS.glob("*.toml"))]


def test_every_bundled_preset_has_a_picture_of_the_runs_that_it_has_today() -> None:
    missing = [preset.id for preset in PRESETS if gallery.picture(preset) is None]
    assert not missing, f"run: python -m benchmarks.gallery (missing or old: {', '.join(missing)})"
    assert gallery.pictures().keys() == {preset.id for preset in PRESETS}
    assert gallery.PICTURES.stat().st_size < 300_000
    for preset in PRESETS:
        found = gallery.picture(preset)
        assert found and len(found.broken.loss) == gallery.POINTS and (found.healed is None) == (not _fixed(preset))


def test_the_order_keeps_what_comes_first_and_begins_with_what_is_basic() -> None:
    ordered = gallery.in_order(PRESETS)
    assert sorted(preset.id for preset in ordered) == [preset.id for preset in PRESETS]
    seen: set[str] = set()
    for preset in ordered:
        assert set(preset.after) <= seen, preset.id
        seen.add(preset.id)
    levels = [presets.LEVELS.index(preset.level) for preset in ordered]
    assert levels == sorted(levels)


def test_presets_that_name_each_other_are_all_listed() -> None:
    circle = [PRESETS[0].model_copy(update={"id": name, "after": [other]}) for name, other in ("ab", "bc", "ca")]
    assert {preset.id for preset in gallery.in_order(circle)} == set("abc")


def test_the_time_of_a_lesson_follows_from_its_words_and_steps() -> None:
    lesson = "\n".join(f'[[lesson]]\ntext = "{"word " * 200}"\nknobs = ["run.seed={at}"]' for at in range(3))
    own = presets.parse(lesson, Path("own.toml"))
    assert (gallery.words(own), gallery.runs(own), gallery.minutes(own)) == (600, 0, 6)
    assert gallery.runs(presets.load("rate-too-high")) == 3, "as it stands, clipped, and with the fix"


def _fixed(preset: presets.Preset) -> bool:
    return bool(preset.promise and preset.promise.fix)


def test_the_first_sentence_of_a_summary_does_not_tell_how_the_run_goes() -> None:
    telling = (
        "NaN, ",
        "diverge",
        "explode",
        "vanish",
        "overflow",
        "nothing",
        "learned",
        "freez",
        "finite",
        "the loss f",
    )
    for preset in PRESETS:
        assert len(preset.setting) >= 15 and preset.summary.startswith(preset.setting), preset.id
        assert not any(word in preset.setting.replace("RNN explosion", "") for word in telling), preset.setting
