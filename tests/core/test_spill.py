"""What a long run measured of its layers comes back from disk bit for bit, and is lost in no case."""

from __future__ import annotations

import errno
import gc
import io
import os
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest
from waiting import join, until

from gradstudio.core import files, history, row_blocks, spill
from gradstudio.core.history import LAYER_METRICS, History
from gradstudio.core.row import Layer, Row
from gradstudio.core.spill import SpilledArray

LAYERS = (Layer("first.weight", "weight", 6), Layer("second.weight", "weight", 9), Layer("second.bias", "bias", 3))
BLOCK = 16
ODD = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-45, 3e38], np.float32)


@pytest.fixture(autouse=True)
def small_blocks_and_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for module in (row_blocks, history):
        monkeypatch.setattr(module, "BLOCK", BLOCK)
    monkeypatch.setattr(files, "user_cache", lambda: tmp_path / "cache")
    return tmp_path / "cache"


def measured(steps: int) -> np.ndarray:
    """(steps, metrics, layers) of every kind of float; a NaN keeps even its sign and its payload."""
    bits = np.random.default_rng(steps).integers(0, 2**32, (steps, len(LAYER_METRICS), len(LAYERS)), np.uint32)
    values = bits.view(np.float32)
    values[::7, : len(ODD), 1] = ODD
    return values


def append(record: History, step: int, layers: np.ndarray) -> None:
    record.append(Row(step, float(step), 1.0, 1.0, 1.0, 0.1, 1.0, False, 0, 1e-3, 1.0, 0.5, 0.01, layers))


def filled(values: np.ndarray) -> History:
    record = History(LAYERS)
    for step, layers in enumerate(values):
        append(record, step, layers)
    return record


def spilled(record: History) -> int:
    return sum(isinstance(block, SpilledArray) for block in record._layers)


def open_files(folder: Path) -> list[str]:
    """What this process holds open under a folder, with a name or without."""
    handles = (Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd"))
    return [target for handle in handles if (target := _target(handle)).startswith(str(folder))]


def _target(handle: Path) -> str:
    try:
        return os.readlink(handle)
    except OSError:  # the one that listed them
        return ""


@pytest.mark.parametrize("start", [0, 1, BLOCK - 1, BLOCK, 3 * BLOCK + 5, 6 * BLOCK - 1, 9 * BLOCK])
@pytest.mark.parametrize("stop", [1, BLOCK, BLOCK + 1, 3 * BLOCK + 6, 6 * BLOCK, None])
def test_every_stretch_is_the_same_to_the_last_bit(start: int, stop: int | None) -> None:
    values = measured(6 * BLOCK + 3)
    record = filled(values)
    assert spilled(record) == 5
    for index, name in enumerate(LAYER_METRICS):
        read = record.layer_metric(name, start, stop)
        assert read.dtype == np.float32 and read.shape == values[start:stop, index].shape
        assert read.tobytes() == np.ascontiguousarray(values[start:stop, index]).tobytes()


def test_without_pread_it_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pread")
    values = measured(4 * BLOCK)
    record = filled(values[: 3 * BLOCK])
    assert record.layer_metric("zero_share").tobytes() == values[: 3 * BLOCK, 4].tobytes()
    for step in range(3 * BLOCK, 4 * BLOCK):
        append(record, step, values[step])
    assert record.layer_metric("zero_share").tobytes() == values[:, 4].tobytes()


def test_a_short_run_and_one_without_layers_make_no_file(small_blocks_and_a_folder: Path) -> None:
    short, bare = filled(measured(2 * BLOCK)), History()
    for step in range(5 * BLOCK):
        append(bare, step, np.empty((len(LAYER_METRICS), 0), np.float32))
    assert spilled(short) == spilled(bare) == 0
    assert bare.layer_metric("grad_norm").shape == (5 * BLOCK, 0)
    assert not small_blocks_and_a_folder.exists()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_the_file_goes_with_its_history(small_blocks_and_a_folder: Path) -> None:
    record = filled(measured(4 * BLOCK))
    assert spilled(record) == 2
    assert len(open_files(small_blocks_and_a_folder)) == 1
    assert list(small_blocks_and_a_folder.iterdir()) == []  # it has no name, so that nothing is left after a crash
    view = record.layer_metric("grad_norm", 0, 3)
    del record
    gc.collect()
    assert open_files(small_blocks_and_a_folder) == []
    assert view.shape == (3, 3)


class _Full(io.FileIO):
    """A file on a disk that is full after so many writes: the last one is cut short, or refused."""

    left, short = 2, False

    def write(self, data) -> int:
        _Full.left -= 1
        if _Full.left >= 0:
            return super().write(data)
        if self.short:
            return super().write(memoryview(data).cast("B")[:100])
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("short", [False, True])
def test_a_disk_that_is_full_loses_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, short: bool) -> None:
    monkeypatch.setattr(_Full, "left", 2)
    monkeypatch.setattr(_Full, "short", short)
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: _Full(tmp_path / "spill", "w+"))
    values = measured(7 * BLOCK)
    record = filled(values)
    assert spilled(record) == 2 and "space" in record._spill.problem.lower()
    for index, name in enumerate(LAYER_METRICS):
        assert record.layer_metric(name).tobytes() == np.ascontiguousarray(values[:, index]).tobytes()


def test_the_last_of_a_disk_is_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "SPARE", 10**18)
    values = measured(4 * BLOCK)
    record = filled(values)
    assert spilled(record) == 0
    assert record.layer_metric("weight_norm").tobytes() == np.ascontiguousarray(values[:, 1]).tobytes()


def test_a_folder_that_cannot_be_loses_nothing(small_blocks_and_a_folder: Path) -> None:
    small_blocks_and_a_folder.write_text("a file in its place")
    values = measured(4 * BLOCK)
    record = filled(values)
    assert spilled(record) == 0 and record._spill.problem
    assert record.layer_metric("grad_norm").tobytes() == np.ascontiguousarray(values[:, 0]).tobytes()


@pytest.mark.parametrize("pread", [True, False])
def test_readers_beside_the_writer_see_what_was_written(monkeypatch: pytest.MonkeyPatch, pread: bool) -> None:
    if not pread:
        monkeypatch.delattr(os, "pread")
    steps = 200 * BLOCK
    record, wrong, looks = History(LAYERS), [], [0, 0]
    grid = np.arange(len(LAYER_METRICS), dtype=np.float32)[:, None] * 10_000 + np.zeros(len(LAYERS), np.float32)

    def read(which: int) -> None:
        random = np.random.default_rng(which)
        while (seen := len(record)) < steps:
            start = int(random.integers(0, seen + 1))
            index = int(random.integers(0, len(LAYER_METRICS)))
            rows = record.layer_metric(list(LAYER_METRICS)[index], start, seen)
            if not np.array_equal(rows[:, 0], index * 10_000 + np.arange(start, seen)):
                wrong.append((index, start, seen))
            looks[which] += seen > 2 * BLOCK

    readers = [threading.Thread(target=read, args=(which,)) for which in range(2)]
    for reader in readers:
        reader.start()
    for step in range(steps):
        append(record, step, grid + step)
        if step == steps // 2:
            until(lambda: all(looks))
    for reader in readers:
        join(reader)
    assert not wrong, wrong


def test_a_disk_that_fails_says_so() -> None:
    record = filled(measured(4 * BLOCK))
    os.ftruncate(record._spill._file.fileno(), 10)
    with pytest.raises(OSError):
        record.layer_metric("grad_norm", 0, BLOCK)
