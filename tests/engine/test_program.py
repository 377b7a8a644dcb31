"""A list of operations as a program: the same calls, in the same order, on the same memory."""

from __future__ import annotations

import gc
import math
import sys
import threading
import time
import weakref

import pytest
import torch
from torch import Tensor
from waiting import PATIENCE, join, until

from gradstudio.engine.passes import torchscript as program
from gradstudio.engine.passes.torchscript import FEWEST, LET_GO, Made, Operation, Program
from gradstudio.engine.runtime import out_of_memory

aten = torch.ops.aten


def chain(x: Tensor, weight: Tensor, out: dict[str, Tensor]) -> list[Operation]:
    """Every form that an argument can have: tensors, whole and broken numbers, infinities, None, lists, truth values,
    formats, words."""
    return [
        Operation(aten.mm.out, (x, weight), {"out": out["product"]}, "aten.mm"),
        Operation(torch.clamp_min, (out["product"], -0.25), {"out": out["clamped"]}, "aten.clamp_min"),
        Operation(
            aten.sum.IntList_out, (out["clamped"], [0], True), {"dtype": torch.float64, "out": out["sum"]}, "aten.sum"
        ),
        Operation(aten.stack.out, ([out["sum"], out["sum"]],), {"out": out["stacked"]}, "aten.stack"),
        Operation(
            aten.linalg_vector_norm.out, (out["stacked"], math.inf), {"out": out["largest"]}, "aten.linalg_vector_norm"
        ),
        Operation(aten.clamp.out, (out["sum"], -math.inf, None), {"out": out["open"]}, "aten.clamp"),
        Operation(
            aten.div.out_mode, (out["sum"], out["largest"]), {"rounding_mode": "floor", "out": out["whole"]}, "aten.div"
        ),
        Operation(Tensor.copy_, (out["copy"], out["clamped"]), name="aten.copy_"),
    ]


def places() -> dict[str, Tensor]:
    shapes = {"product": (5, 3), "clamped": (5, 3), "copy": (5, 3)}
    wide = {"sum": (1, 3), "stacked": (2, 1, 3), "largest": (), "open": (1, 3), "whole": (1, 3)}
    return {name: torch.zeros(shape) for name, shape in shapes.items()} | {
        name: torch.zeros(shape, dtype=torch.float64) for name, shape in wide.items()
    }


def test_it_does_what_the_operations_do_one_by_one() -> None:
    x, weight, one, other = torch.randn(5, 4), torch.randn(4, 3), places(), places()
    made = Program(chain(x, weight, one))
    assert len(made._parts) == 1
    for _ in range(3):
        x.copy_(torch.randn(5, 4))
        made.run()
        for function, args, kwargs, *_ in chain(x, weight, other):
            function(*args, **kwargs)
        for name, value in one.items():
            assert torch.equal(value, other[name]) and value.abs().sum() > 0, name


@pytest.mark.parametrize("whole", [True, False])
def test_what_is_made_anew_is_put_where_it_is_wanted(whole: bool) -> None:
    x, place, seen = torch.randn(6), torch.zeros(3), torch.zeros(3)
    low, high = torch.zeros(3), torch.zeros(3)
    every_other = torch.zeros(2)

    def split(pairs: Tensor, dim: int) -> None:
        least, greatest = torch.aminmax(pairs, dim=dim)
        place.copy_(greatest)
        low.data, every_other.data = least, least.as_strided((2,), (2,), 0)

    made = (Made(1, place, None), Made(0, low, [(low, None), (every_other, ((2,), (2,), 0))]))
    operations = [
        Operation(split, (x.view(3, 2),), {"dim": 1}, "aten.aminmax", made, results=2),
        Operation(torch.add, (low, place), {"out": seen}, "aten.add"),
        Operation(torch.mul, (every_other, 2.0), {"out": high[:2]}, "aten.mul"),
        Operation(lambda: None, (), name=LET_GO),
    ]
    program = Program(operations, whole=whole)
    assert (len(program._parts) == 1) == whole
    for _ in range(2):
        x.copy_(torch.randn(6))
        program.run()
        least, greatest = torch.aminmax(x.view(3, 2), dim=1)
        assert (
            torch.equal(place, greatest)
            and torch.equal(seen, least + greatest)
            and torch.equal(high[:2], 2 * least[::2])
        )


def test_what_only_python_knows_is_called_in_its_turn() -> None:
    x = torch.zeros(3)
    seen: list[float] = []
    adding = [Operation(aten.add_.Tensor, (x, torch.ones(3)), name="aten.add_")] * FEWEST
    looking = Operation(lambda tensor: seen.append(tensor[0].item()), (x,))
    program = Program([*adding, looking, *adding[1:], looking])
    program.run()
    program.run()
    assert seen == [FEWEST, 2 * FEWEST - 1, 3 * FEWEST - 1, 4 * FEWEST - 2]
    assert len(program._parts) == 1 + 1 + (FEWEST - 1) + 1


@pytest.mark.parametrize("place", [0, 5, 15])
@pytest.mark.parametrize(
    ("name", "factor"), [("aten.no_such_thing", 2.0), ("aten.mul_", complex(2))], ids=["unknown", "argument"]
)
def test_what_torch_does_not_take_is_called_from_python(name: str, factor: complex, place: int) -> None:
    x = torch.ones(3)
    operations = [Operation(aten.add_.Tensor, (x, torch.ones(3)), name="aten.add_")] * 16
    operations[place] = Operation(lambda tensor, factor: tensor.mul_(factor.real), (x, factor), name=name)
    Program(operations).run()
    assert x.tolist() == [(1 + place) * 2 + 15 - place] * 3


def test_numbers_that_are_not_numbers() -> None:
    x = torch.zeros(4)
    fill = [
        Operation(aten.fill_.Scalar, (x[i : i + 1], value), name="aten.fill_")
        for i, value in enumerate((math.inf, -math.inf, math.nan, 1e-45))
    ]
    program = Program(fill)
    program.run()
    assert len(program._parts) == 1
    assert x[:2].tolist() == [math.inf, -math.inf] and x[2] != x[2] and x[3] == 1e-45


def test_it_runs_through_while_another_thread_holds_the_interpreter_lock() -> None:
    x, weight, product, begun = torch.randn(600, 600), torch.randn(600, 600), torch.zeros(600, 600), torch.zeros(1)
    program = Program(
        [
            Operation(aten.add_.Scalar, (begun, 1), name="aten.add_"),
            *[Operation(aten.mm.out, (x, weight), {"out": product}, "aten.mm")] * 40,
            Operation(aten.add_.Scalar, (begun, 1), name="aten.add_"),
        ]
    )
    program.run()
    seen, usual = begun.numpy(), sys.getswitchinterval()
    thread = threading.Thread(target=program.run)
    sys.setswitchinterval(60)  # nobody asks for the lock while this thread looks
    try:
        thread.start()
        until(lambda: seen[0] >= 3 or not thread.is_alive())
        ends = time.monotonic() + PATIENCE
        while seen[0] < 4 and time.monotonic() < ends:  # Python, with the lock
            pass
        assert seen[0] == 4
    finally:
        sys.setswitchinterval(usual)
        join(thread)


def test_the_way_in_which_others_compile_is_left_alone() -> None:
    x = torch.zeros(3)
    program = Program([Operation(aten.add_.Tensor, (x, torch.ones(3)), name="aten.add_")] * 5)
    program.run()
    assert torch._C._get_graph_executor_optimize()
    thread = threading.Thread(target=program.run)
    thread.start()
    join(thread)
    assert x.tolist() == [10.0] * 3


def test_a_long_list_is_more_than_one_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "LONGEST", 10)
    x = torch.zeros(3)
    made = Program([Operation(aten.add_.Tensor, (x, torch.ones(3)), name="aten.add_")] * 35)
    made.run()
    assert len(made._parts) == 4 and x.tolist() == [35.0] * 3


def test_what_goes_wrong_is_told_as_the_operation_tells_it() -> None:
    wrong = [Operation(aten.add_.Tensor, (torch.zeros(3), torch.ones(2)), name="aten.add_")] * FEWEST
    made = Program(wrong)
    assert len(made._parts) == 1
    with pytest.raises(RuntimeError) as by_torch:
        made.run()
    with pytest.raises(RuntimeError) as by_python:
        wrong[0].function(*wrong[0].args)
    assert str(by_torch.value) == str(by_python.value)


def test_memory_that_is_used_up_is_recognized() -> None:
    small = torch.zeros(3)
    made = (Made(0, small, None),)
    huge = Operation(torch.Tensor.repeat, (small, [1 << 40]), {}, "aten.repeat", made)
    with pytest.raises(RuntimeError) as fault:
        Program([huge]).run()
    assert out_of_memory(fault.value)


def test_nothing_of_it_outlives_it() -> None:
    """No collector runs beside a window for seconds, and gc.freeze would keep for good what is in a cycle then."""
    gc.disable()
    try:
        x = torch.zeros(3)
        gone = weakref.ref(x)
        made = Program([Operation(aten.add_.Tensor, (x, torch.ones(3)), name="aten.add_")] * FEWEST)
        made.run()
        del made, x
        assert gone() is None
    finally:
        gc.enable()
