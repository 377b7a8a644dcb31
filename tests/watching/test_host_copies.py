"""Tensors that are copied before they are measured. There may be no GPU here, so the host's own stand for those of
one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from gradstudio.engine.gauges import scattered
from gradstudio.engine.passes.flat import Layout
from gradstudio.watching.measuring import host_copies
from gradstudio.watching.measuring.host_copies import HostCopies


def read(copies: HostCopies, tensors: list[Tensor | None], sizes: list[int]) -> list[list[float]]:
    layout, addresses = Layout(sizes), copies.readable(tensors)
    flat = np.full(layout.length, np.nan, np.float32)
    scattered.copy(np.array(addresses, np.int64), layout.starts, layout.sizes, flat)
    return [flat[start:stop].tolist() for start, stop in zip(layout.starts, layout.stops, strict=True)]


@pytest.mark.parametrize("at_once", [1, 7, 4_000_000])
@pytest.mark.parametrize("on_gpu", [True, False])
def test_each_tensor_can_be_read(monkeypatch: pytest.MonkeyPatch, on_gpu: bool, at_once: int) -> None:
    monkeypatch.setattr(host_copies, "AT_ONCE", at_once)
    monkeypatch.setattr(host_copies, "is_on_host", lambda tensor: not on_gpu)
    tensors: list[Tensor | None] = [
        torch.randn(3, 2), torch.randn(4, 2).t(), None, torch.randn(5).bfloat16(), torch.randn(2).bfloat16(),
        torch.empty(0), torch.randn(3, 3).to_sparse(), torch.tensor(2.5), torch._neg_view(torch.randn(3)),
    ]  # fmt: skip
    sizes = [6, 8, 4, 5, 2, 0, 9, 1, 3]
    copies = HostCopies(sizes)
    for _ in range(2):
        found = read(copies, tensors, sizes)
        for tensor, entries in zip(tensors, found, strict=True):
            if tensor is None:
                assert all(map(np.isnan, entries))
            else:
                assert entries == tensor.to_dense().flatten().tolist()
        for tensor in tensors:
            if tensor is not None and tensor.layout is torch.strided:
                tensor.mul_(2)


def test_the_tensors_of_a_gpu_are_copied_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_copies, "is_on_host", lambda tensor: False)
    tensors = [torch.randn(100) for _ in range(40)]
    groups = host_copies._groups
    assert [len(group) for group in groups(tensors)] == [40]
    monkeypatch.setattr(host_copies, "AT_ONCE", 1000)
    assert [len(group) for group in groups(tensors)] == [10, 10, 10, 10]
    assert [len(group) for group in groups([*tensors[:3], None, tensors[3].double(), *tensors[4:6]])] == [3, 1, 2]
