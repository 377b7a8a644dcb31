"""The next character of a book, Alice's Adventures in Wonderland."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gradstudio.core.files import RESOURCES
from gradstudio.core.sections.task_knobs import Problem
from gradstudio.engine.generators import generator
from gradstudio.engine.shape import Shape
from gradstudio.engine.tasks.task import Batch, Task


class Characters(Task):
    """The task to answer each character with the next one, in windows of problem.seq_len characters. Training sees the
    first nine tenths of the book; the test set is the last tenth, window after window."""

    def __init__(self, problem: Problem, seed: int, device: str) -> None:
        super().__init__(problem, seed, device)
        self.vocabulary, text = _book()
        self.training, self.testing = text[: len(text) * 9 // 10], text[len(text) * 9 // 10 :]
        self.shape = Shape(problem.seq_len, len(self.vocabulary), len(self.vocabulary), problem.seq_len)

    def draw(self, examples: int, source: torch.Generator) -> Batch:
        windows = self.training.unfold(0, self.shape.time_steps + 1, 1)
        return self._examples(windows[torch.randint(len(windows), (examples,), generator=source)])

    def test_batch(self, model: nn.Module) -> Batch:
        return self._noisy(self._to_device(self._examples(self._test_windows)), generator(self.seed, "test_noise"))

    @property
    def tests(self) -> int:
        return len(self._test_windows)

    @property
    def _test_windows(self) -> Tensor:
        return self.testing.unfold(0, self.shape.time_steps + 1, self.shape.time_steps)

    def _examples(self, windows: Tensor) -> Batch:
        """Return the examples for (examples, time steps + 1) character indices."""
        following = windows[:, 1:]
        return Batch(
            F.one_hot(windows[:, :-1], self.shape.features).float(),
            following if self.shape.answers > 1 else following.flatten(),
        )


@cache  # a run, each branch and each tried fix have their own trainer, and reading the book takes 50 ms
def _book() -> tuple[list[str], Tensor]:
    """Return the characters that occur in the book, and the book as their indices, which is never written to."""
    book = (RESOURCES / "data" / "alice.txt").read_text("ascii")
    vocabulary = sorted(set(book))
    number = {character: index for index, character in enumerate(vocabulary)}
    return vocabulary, torch.tensor([number[character] for character in book])
