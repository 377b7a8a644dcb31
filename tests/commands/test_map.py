"""The command `map`: what it refuses before anything is trained or written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from session.map.test_map import plan_of

from gradstudio.session.map.journal import Journal

AXES = ["--x", "optimizer.lr=0.01:1:log", "--y", "model.init_gain=0.1:10:log"]


@pytest.mark.parametrize("option", ["--csv", "--npz", "--picture"])
def test_no_file_is_written_over_the_map_itself(gradstudio: Callable, tmp_path: Path, option: str) -> None:
    path = tmp_path / "a.svg"
    Journal(path, plan_of(2), resume=False).close()
    before = path.read_bytes()
    shown = gradstudio("map", "show", path, option, tmp_path / "." / "a.svg")
    made = gradstudio("map", "healthy-mlp", *AXES, "--out", path, "--resume", option, path)
    for refused in (shown, made):
        assert refused.code == 2 and "is not allowed: the map itself is in that file" in refused.err
    assert path.read_bytes() == before


def test_two_files_of_a_map_have_two_names(gradstudio: Callable, tmp_path: Path) -> None:
    out = tmp_path / "a.map"
    refused = gradstudio("map", "healthy-mlp", *AXES, "--out", out, "--csv", tmp_path / "b", "--npz", tmp_path / "b")
    assert refused.code == 2 and "--csv is in that file" in refused.err and not out.exists()


def test_no_cells_are_not_allowed(gradstudio: Callable, tmp_path: Path) -> None:
    refused = gradstudio("map", "healthy-mlp", *AXES, "--out", tmp_path / "a.map", "--cells", "0")
    assert refused.code == 2 and "--cells 0 is not allowed; allowed: a whole number from 2" in refused.err


def test_a_map_of_panels_is_not_that_of_one(gradstudio: Callable, tmp_path: Path) -> None:
    path = tmp_path / "a.map"
    Journal(path, plan_of(2), resume=False).close()
    refused = gradstudio("map", "healthy-mlp", *AXES, "--by", "clipping.kind=none,norm", "--out", path, "--resume")
    assert refused.code == 2 and " there, " in refused.err
