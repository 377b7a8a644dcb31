"""The numbers of a run's steps: the script's own, the observer's, and the rows."""

from __future__ import annotations


class StepNumbers:
    """Counts the steps of a run; one of `every` becomes a row."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.count = 0  # of the run's steps so far
        self.first = 0  # the observer's number of the first step
        self.offset = 0  # the script's own number of it
        self.rows_before = 0  # those of the run that this one resumes

    def own(self, step: int) -> int:
        """Return the script's own number of a step of the observer."""
        return step - self.first + self.offset

    def row_of(self, step: int) -> int:
        """Return the row of a step of the observer, if each step is a row."""
        return step - self.first + self.rows_before

    def of_row(self, row: int, step: int) -> int:
        """Return the number that the row of a step of the observer shows."""
        return row - self.rows_before + self.offset if self.every > 1 else self.own(step)

    def offset_for(self, own: int) -> int:
        """Return the offset with which the next step has this number in the script."""
        return own // self.every - self.count // self.every
