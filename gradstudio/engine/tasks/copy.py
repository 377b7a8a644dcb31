"""The copying task: some symbols, a long pause, then a sign to repeat them."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from gradstudio.core.sections.task_knobs import Problem
from gradstudio.engine.shape import Shape
from gradstudio.engine.tasks.task import Batch, Task

SYMBOLS, KINDS = 10, 8
BLANK, DELIMITER = KINDS, KINDS + 1  # the two further inputs


class Copy(Task):
    """The copying problem (Hochreiter and Schmidhuber 1997; sizes as in Arjovsky 2016): 10 symbols of 8 kinds,
    problem.seq_len blanks, a delimiter, and 10 more blanks during which the symbols are due in their order. A guess is
    right once in 8, loss ln 8."""

    def __init__(self, problem: Problem, seed: int, device: str) -> None:
        super().__init__(problem, seed, device)
        self.shape = Shape(SYMBOLS + problem.seq_len + 1 + SYMBOLS, KINDS + 2, KINDS, SYMBOLS)

    def draw(self, examples: int, source: torch.Generator) -> Batch:
        symbols = torch.randint(KINDS, (examples, SYMBOLS), generator=source)
        sequence = torch.full((examples, self.shape.time_steps), BLANK)
        sequence[:, :SYMBOLS] = symbols
        sequence[:, -SYMBOLS - 1] = DELIMITER
        return Batch(F.one_hot(sequence, KINDS + 2).float(), symbols)
