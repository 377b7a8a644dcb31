"""What is measured of tensors where they lie on a GPU, against numpy. There may be no GPU here: torch's public
operations measure on the CPU too, and Triton's kernels where Triton is and interprets them (TRITON_INTERPRET=1)."""

from __future__ import annotations

import importlib.util
import math
import os
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gradstudio.engine.gauges.device_table import FORMATS, PlainTable, TritonTable

NEAR = 1e-12  # relative, of sums in 64 bits
SHAPES = ((3,), (200, 90), (), (17, 33), (0,), (5, 5))

_kernels_run = importlib.util.find_spec("triton") and (torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET"))
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TABLES = [
    PlainTable,
    pytest.param(TritonTable, marks=pytest.mark.skipif(not _kernels_run, reason="Triton's kernels do not run here")),
]


def _tensors(form: torch.dtype, scale: float = 1.0) -> list[Tensor]:
    return [(scale * torch.randn(shape)).to(DEVICE, form) for shape in SHAPES]


def _entries(tensor: Tensor) -> np.ndarray:
    return tensor.double().cpu().numpy().ravel()


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("form", FORMATS, ids=str)
def test_the_figures_of_gradients(table: Any, form: torch.dtype) -> None:
    torch.manual_seed(0)
    weights, gradients = _tensors(form), _tensors(form)
    gradients[1][3:5] = 0
    gradients[3][2, 2], gradients[3][0, 0] = math.nan, -math.inf
    table = table(weights)
    found = table.gradient([*gradients[:5], None]).cpu().numpy()
    assert np.array_equal(found, table.gradient([*gradients[:5], None]).cpu().numpy(), equal_nan=True)
    for place, tensor in enumerate(gradients[:5]):
        entries = _entries(tensor)
        numbers = np.abs(entries[~np.isnan(entries)])
        wanted = [np.square(entries).sum(), numbers.max(initial=0), (entries == 0).sum()]
        assert found[:3, place] == pytest.approx(wanted, rel=NEAR, nan_ok=True)
        assert found[3:5, place].tolist() == [np.isnan(entries).sum(), np.isinf(entries).sum()]
        assert found[5, place] == pytest.approx(entries.sum(), rel=1e-9, abs=1e-9, nan_ok=True)
    assert found[:, 5].tolist() == [0, 0, 25, 0, 0, 0]


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("form", FORMATS, ids=str)
def test_the_figures_of_a_change(table: Any, form: torch.dtype) -> None:
    torch.manual_seed(1)
    before, gradients = _tensors(form), [*_tensors(torch.float32)[:5], None]
    after = [weight + 0.125 for weight in before]
    found = table(before).change(before, after, gradients).cpu().numpy()
    for place, (old, new, gradient) in enumerate(zip(before, after, gradients, strict=True)):
        weights, moves = _entries(old), _entries(new) - _entries(old)
        along = np.zeros_like(moves) if gradient is None else _entries(gradient)
        wanted = [np.square(weights).sum(), np.square(moves).sum(), (moves * along).sum(), np.count_nonzero(along)]
        assert found[:, place] == pytest.approx(wanted, rel=1e-9, abs=NEAR)


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e12, 1e36])
def test_gradients_of_every_size_have_their_norm(table: Any, scale: float) -> None:
    gradients = _tensors(torch.float32, scale)
    squares = table(gradients).gradient(gradients)[0].cpu().numpy()
    assert squares == pytest.approx([np.square(_entries(each)).sum() for each in gradients], rel=NEAR)


@pytest.mark.skipif(not importlib.util.find_spec("triton"), reason="there is no Triton")
@pytest.mark.skipif(bool(os.environ.get("TRITON_INTERPRET")), reason="Triton compiles nothing")
@pytest.mark.parametrize("architecture", [80, 90])
@pytest.mark.parametrize("name", ["measure_gradient", "measure_change", "sum_pieces"])
def test_the_kernels_compile_for_gpus_that_are_not_here(name: str, architecture: int) -> None:
    triton, kernels = import_module("triton"), import_module("gradstudio.engine.gauges.triton_kernels")
    target = import_module("triton.backends.compiler").GPUTarget("cuda", architecture, 32)
    constants = {"FORMAT": 1, "GRADIENT_FORMAT": 0, "LARGEST": 1, "PIECE": kernels.PIECE, "BLOCK": 128}
    types = {each: "*i64" for each in getattr(kernels, name).arg_names}
    types |= dict.fromkeys(("parts", "figures"), "*fp64") | dict.fromkeys(("first", "pieces"), "i32")
    types |= {"tensors": "i32"} if name == "sum_pieces" else {}
    types |= dict.fromkeys(constants, "constexpr")
    given = getattr(kernels, name).arg_names
    source = import_module("triton.compiler").ASTSource(
        getattr(kernels, name),
        {each: types[each] for each in given},
        {each: value for each, value in constants.items() if each in given},
    )
    assert triton.compile(source, target=target).asm["cubin"]
