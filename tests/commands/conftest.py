"""Runs that tests only read: trained for the first test of a file that asks for them, and copied for the others."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

Once = Callable[[str, Callable[[Path], object]], Path]


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("once")


@pytest.fixture
def once(made_once: Path, own_user_data: Path) -> Once:
    """Have something done once in a file, with a folder for what it writes, which this returns. What it leaves in the
    user's data is there for every test that asks for it."""

    def done(name: str, do: Callable[[Path], object]) -> Path:
        data, folder = made_once / f"{name}-data", made_once / name
        if data.exists():
            shutil.copytree(data, own_user_data)
        else:
            folder.mkdir()
            do(folder)
            shutil.copytree(own_user_data, data)
        return folder

    return done
