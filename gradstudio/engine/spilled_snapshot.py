"""Snapshots on disk, for models of which only a few snapshots fit into memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from gradstudio.core.spill import SpilledArray, SpillFile
from gradstudio.engine.snapshot import Snapshot

if TYPE_CHECKING:
    from gradstudio.engine.trainer import Trainer

SMALL = 1 << 20  # bytes of a tensor that stays in memory
PIECE = 64 << 20  # bytes that are written or read at once


class _TensorOnDisk(NamedTuple):
    pieces: list[SpilledArray]
    shape: torch.Size
    dtype: torch.dtype
    device: torch.device


class SpilledSnapshot:
    """A snapshot that its own thread moves to disk. The file is deleted with this object. If the disk cannot take it,
    it stays in memory."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.step, self.experiment, self.nbytes = snapshot.step, snapshot.experiment, snapshot.nbytes
        self.on_disk = True
        self._file = SpillFile()
        self._content = {each.name: getattr(snapshot, each.name) for each in fields(snapshot)}
        self._thread = threading.Thread(target=self._move, name="moving a snapshot", daemon=True)
        self._thread.start()

    @property
    def moving(self) -> bool:
        """Whether it is being moved to disk."""
        return self._thread.is_alive()

    def restore(self, trainer: Trainer) -> None:
        """Rewind a trainer of the same run to this state."""
        self._loaded().restore(trainer)

    def pack(self) -> bytes:
        """Return the snapshot as bytes."""
        return self._loaded().pack()

    def _loaded(self) -> Snapshot:
        self._thread.join()
        return Snapshot(**_replace_kind(self._content, _TensorOnDisk, self._read))

    def _move(self) -> None:
        try:
            moved = _replace_kind(self._content, Tensor, self._write)
        except Exception:  # such as an error of the device, which whoever reads the tensors gets too
            self.on_disk = False
            return
        self.on_disk = not self._file.problem
        if self.on_disk:
            self._content = moved

    def _write(self, tensor: Tensor) -> Tensor | _TensorOnDisk:
        if tensor.nbytes < SMALL or self._file.problem:
            return tensor
        data = tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
        pieces = [self._file.spill(data[None, start : start + PIECE]) for start in range(0, len(data), PIECE)]
        on_disk = [piece for piece in pieces if isinstance(piece, SpilledArray)]
        return _TensorOnDisk(on_disk, tensor.shape, tensor.dtype, tensor.device)

    def _read(self, tensor: _TensorOnDisk) -> Tensor:
        loaded = torch.empty(tensor.shape, dtype=tensor.dtype)
        data = loaded.flatten().view(torch.uint8).numpy()  # the same memory
        for number, piece in enumerate(tensor.pieces):
            data[number * PIECE :][: piece.shape[1]] = piece.rows(0, 0, piece.shape[1])
        return loaded.to(tensor.device)


def _replace_kind(value: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """Return a value with `change` applied to each object of a kind in its nested lists and dicts."""
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, dict):
        return {name: _replace_kind(each, kind, change) for name, each in value.items()}
    return [_replace_kind(each, kind, change) for each in value] if type(value) is list else value
