"""The record of a run: numbers of every step, append-only. One writer, many readers, no lock.

The writer fills a row and then raises the count; a reader reads the count and then the rows below it. Rows are in
blocks that never move, so a reader's view stays valid while the writer goes on. NaN and Inf are stored as they are. In
a long run the rows of all layers do not fit in memory: their full blocks are on disk."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

import numpy as np

from gradstudio.core.columns import COLUMNS, LAYER_METRICS
from gradstudio.core.loop_calls import Loop, without_skip
from gradstudio.core.rank_figures import RankRows
from gradstudio.core.row import AccumulationError, Activations, Layer, Logged, Row, Settings, loss_broke
from gradstudio.core.row_blocks import BLOCK, places, stretches
from gradstudio.core.spill import SpilledArray, SpillFile
from gradstudio.core.unknown import UNKNOWN, known_mask

LOOK_EVERY = 20  # steps between two looks of most rules
SAMPLE_EVERY = 120  # steps between two samples of the activations; one costs the time of 0.2 to 1.1 steps

OLDER = (13, 17, 20, 21, 23, 24)  # number of columns in the rows of older versions
OLDER_METRICS = (6,)  # number of metrics of a layer in them
LEAST_DEVIATION = 1e-3  # of the mean: float32 norms and means do not show a smaller one

_COLUMN = {name: index for index, name in enumerate(COLUMNS)}
_LAYER_METRIC = {name: index for index, name in enumerate(LAYER_METRICS)}
_COLUMNS_OF = attrgetter(*COLUMNS)
_NO_STEPS, _NO_VALUES = np.empty(0, np.int64), np.empty(0)  # of a column that was not measured


class History:
    """The rows of a run. The layers' blocks are stored metric by metric, so that reading one metric from disk reads
    nothing else."""

    def __init__(self, layers: tuple[Layer, ...] = ()) -> None:
        self.layers = layers
        self._count = 0
        self.broken = False  # whether the latest row went non-finite
        self._rows: list[np.ndarray] = []  # each (BLOCK, columns), float64
        self._layers: list[np.ndarray | SpilledArray] = []  # each (metrics, BLOCK, layers), float32: 1e-38 to 1e38
        self._filling = np.empty((0, 0, 0), np.float32)  # the last of them
        self._spill = SpillFile()
        self.harmless: set[int] = set()  # steps of such rows; not kept in the library
        self.ranks = RankRows()
        # The first step of each stretch of steps that made the same calls, apart from skips.
        self.loops: list[tuple[int, Loop]] = []
        self.settings: list[tuple[int, Settings]] = []  # the first step of each stretch of steps under the same ones
        self.accumulated: list[AccumulationError] = []
        self.activations: list[Activations] = []
        # The first step of each stretch of observed steps with the same unused layers.
        self.unused: list[tuple[int, tuple[str, ...]]] = []
        self.logged: list[Logged] = []
        # Whether rules that look every LOOK_EVERY steps look at the latest row: also at the first non-finite one.
        self.due = False

    def __len__(self) -> int:
        return self._count

    def append(self, row: Row) -> None:
        """Add a row. Only the single writer may call this."""
        line = self._count % BLOCK
        if line == 0:
            self._add_block()
        self._rows[-1][line] = _COLUMNS_OF(row)
        layers = row.layers
        if layers.dtype != np.float32:
            with np.errstate(over="ignore"):
                layers = layers.astype(np.float32)
        self._filling[:, line] = layers
        if row.ranks is not None:
            self.ranks.extend(row.ranks[None])
        if row.loop is not None:
            self._note_loop(self._count, row.loop)
        if row.settings is not None and (not self.settings or self.settings[-1][1] != row.settings):
            self.settings.append((self._count, row.settings))
        if row.accumulated is not None:
            self.accumulated.append(row.accumulated)
        if row.activations is not None:
            self.activations.append(row.activations)
        if row.unused is not None and row.unused != (self.unused[-1][1] if self.unused else ()):
            self.unused.append((self._count, row.unused))
        self.logged += row.logged
        if row.harmless:
            self.harmless.add(self._count)
        broke = row.went_nonfinite
        self.due = (self._count + 1) % LOOK_EVERY == 0 or (broke and not self.broken)
        self.broken = broke
        self._count += 1

    def extend(self, columns: np.ndarray, layers: np.ndarray) -> None:
        """Add rows that were measured before: (rows, columns) and (metrics, rows, layers). Missing columns and metrics
        are UNKNOWN. Only the single writer may call this."""
        given, metrics = columns.shape[1], len(layers)
        for lines, taken in places(self._count, len(columns)):
            if lines.start == 0:
                self._add_block()
            self._rows[-1][lines, :given] = columns[taken]
            self._rows[-1][lines, given:] = UNKNOWN
            self._filling[:metrics, lines] = layers[:, taken]
            self._filling[metrics:, lines] = UNKNOWN
            self._count += lines.stop - lines.start

    def extend_finite(self, columns: np.ndarray, layers: np.ndarray) -> None:
        """Add rows that have just been measured, like `extend`, if all are finite and have nothing beside their columns
        and layers."""
        with np.errstate(over="ignore"):
            self.extend(columns, layers)
        self.due, self.broken = self._count % LOOK_EVERY == 0, False

    def catch_up(self, later: History) -> None:
        """Add the rows and notes that a later reading of the same history has. Only the single writer may call this."""
        count = len(self)
        self.ranks.extend(later.ranks.rows(len(self.ranks)))  # before the rows: a reader of a row looks up its ranks
        if len(later) > count:
            self.extend(later.table(count), np.stack([later.layer_metric(name, count) for name in LAYER_METRICS]))
        self._take_notes(later, len(self))

    def full_blocks(self) -> History:
        """Return the rows that fill whole blocks, without the notes beside them, as a history to which rows can be
        added. The blocks are shared, as they are never written again."""
        return self._with_blocks(History(self.layers), len(self))

    def until(self, step: int) -> History:
        """Return the rows before a step as a history to which rows can be added. Full blocks are shared, as they are
        never written again."""
        part = self._with_blocks(self._reader(step), step)
        shared = len(part)
        if shared < step:
            columns = self.table(shared, step)
            part.extend(columns, np.stack([self.layer_metric(name, shared, step) for name in LAYER_METRICS]))
        return part

    def _with_blocks(self, part: History, step: int) -> History:
        """Give a history without rows the full blocks before a step."""
        part._rows, part._layers = self._rows[: step // BLOCK], self._layers[: step // BLOCK]
        part._count = len(part._rows) * BLOCK
        return part

    def as_it_grew(self, start: int, stop: int) -> Iterator[History]:
        """Yield the history as it was after each of the rows start to stop: a single growing object, for reading
        only."""
        grown = self.before(start)
        for step in range(start, min(stop, self._count)):
            grown.grow(self, self.went_nonfinite_at(step))
            yield grown

    def before(self, step: int) -> History:
        """Return the history as it was before a step, for reading only; `grow` adds one more row."""
        earlier = self._reader(step)
        earlier._rows, earlier._layers, earlier._count = self._rows, self._layers, min(step, self._count)
        return earlier

    def grow(self, whole: History, broke: bool) -> None:
        """Add one more row of the whole history to this view; `broke` is whether that row is non-finite."""
        self._count += 1
        if self.lacks_notes_of(whole):
            self._take_notes(whole, self._count)
        self.due, self.broken = self._count % LOOK_EVERY == 0 or (broke and not self.broken), broke

    def grow_finite(self) -> None:
        """Add one more row that is finite, from a whole history whose notes are all here."""
        self._count = count = self._count + 1
        self.due, self.broken = count % LOOK_EVERY == 0, False

    def lacks_notes_of(self, whole: History) -> bool:
        """Return whether the whole history has notes that are missing here."""
        return (
            len(whole.loops) > len(self.loops)
            or len(whole.settings) > len(self.settings)
            or len(whole.accumulated) > len(self.accumulated)
            or len(whole.activations) > len(self.activations)
            or len(whole.unused) > len(self.unused)
            or len(whole.logged) > len(self.logged)
        )

    def scaler_skips(self, start: int = 0) -> np.ndarray:
        """Return the column `skipped` restricted to the scaler's skips, (rows,): an update of a finite gradient was
        skipped because the user asked for it, for example at a spike."""
        skipped = self.column("skipped", start)
        return np.where((skipped == 1) & np.isfinite(self.column("grad_norm", start)), 0.0, skipped)

    def went_nonfinite_at(self, step: int) -> bool:
        """Return the same as `Row.went_nonfinite`, for a recorded step."""
        return (
            step >= 0
            and step not in self.harmless
            and (
                loss_broke(self.value("loss", step))
                or (self.value("nonfinite", step) > 0 and self.value("skipped", step) != 1)
            )
        )

    def _reader(self, step: int) -> History:
        """Return a history of the same layers with the notes from before a step."""
        reader = History(self.layers)
        reader._take_notes(self, step)
        reader.ranks, reader.harmless = self.ranks, self.harmless
        reader.broken = self.went_nonfinite_at(min(step, self._count) - 1)
        return reader

    def _take_notes(self, other: History, step: int) -> None:
        """Copy the notes of another history from before a step that this one does not have yet."""
        for notes, others in zip(self._notes(), other._notes(), strict=True):
            while len(notes) < len(others) and others[len(notes)][0] < step:
                notes.append(others[len(notes)])

    def _notes(self) -> tuple[list, ...]:
        """Return the lists beside the rows; each entry begins with its step."""
        return self.loops, self.settings, self.accumulated, self.activations, self.unused, self.logged

    def logged_column(self, name: str, start: int, stop: int) -> np.ndarray:
        """Return rows start to stop of a number that the script logs."""
        column = np.full(stop - start, UNKNOWN)
        for note in self.logged:
            if note.name == name and start <= note.step < stop:
                column[note.step - start] = note.value
        return column

    @property
    def logged_names(self) -> list[str]:
        """The names of all numbers that the script logs."""
        return list(dict.fromkeys(note.name for note in list(self.logged)))

    def logged_as(self, name: str) -> tuple[list[int], list[float]]:
        """Return the steps and values of a number that the script logs."""
        notes = [note for note in self.logged if note.name == name]
        return [note.step for note in notes], [note.value for note in notes]

    def column(self, name: str, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Return rows start to stop of one column: float64, (rows,)."""
        index = _COLUMN[name]
        parts = [self._rows[block][first:last, index] for block, first, last in stretches(start, stop, self._count)]
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0), *parts])

    def table(self, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Return rows start to stop of all columns, in the order of COLUMNS: float64, (rows, columns)."""
        parts = [self._rows[block][first:last] for block, first, last in stretches(start, stop, self._count)]
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty((0, len(COLUMNS))), *parts])

    def measurements(self, name: str, start: int = 0, stop: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the steps from start to stop at which a column was measured, and its values there, which may be
        NaN."""
        values = self.column(name, start, stop)
        if not (there := known_mask(values)).any():  # as for most columns nearly always
            return _NO_STEPS, _NO_VALUES
        rows = np.flatnonzero(there)
        return rows + min(max(start, 0), self._count), values[rows]

    def layer_metric(self, name: str, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Return rows start to stop of one metric of every layer, stored or derived: float32, (rows, layers). OSError
        if reading from disk fails."""
        if name == "grad_ratio":
            gradients, weights = (self.layer_metric(norm, start, stop) for norm in ("grad_norm", "weight_norm"))
            with np.errstate(divide="ignore", invalid="ignore"):
                return np.where((gradients == 0) & (weights == 0), np.float32(0), gradients / weights)
        if name == "grad_std":
            norms, means = (self.layer_metric(part, start, stop).astype(float) for part in ("grad_norm", "grad_mean"))
            return deviations(norms, means, np.array([layer.size for layer in self.layers])).astype(np.float32)
        index = _LAYER_METRIC[name]
        parts = stretches(start, stop, self._count)
        if len(parts) == 1:
            return self._layer_rows(index, *parts[0])
        values, filled = np.empty((sum(last - first for _, first, last in parts), len(self.layers)), np.float32), 0
        for block, first, last in parts:
            values[filled : filled + last - first] = self._layer_rows(index, block, first, last)
            filled += last - first
        return values

    def value(self, name: str, step: int) -> float:
        """Return one column at one step, fast enough for every step."""
        return self._rows[step // BLOCK].item(step % BLOCK, _COLUMN[name])

    def row(self, step: int) -> dict[str, float]:
        """Return every column at one step."""
        if not 0 <= step < self._count:
            raise IndexError(f"step {step} is not among the {self._count} measured steps")
        return dict(zip(COLUMNS, self._rows[step // BLOCK][step % BLOCK].tolist(), strict=True))

    def _add_block(self) -> None:
        """Make room for BLOCK more rows. The layers of the latest full block stay in memory, where most reads go; older
        blocks are moved to disk."""
        if len(self._layers) >= 2 and self.layers and not isinstance(latest := self._layers[-2], SpilledArray):
            self._layers[-2] = self._spill.spill(latest)  # completely on disk before readers are sent there
        self._filling = np.empty((len(LAYER_METRICS), BLOCK, len(self.layers)), np.float32)
        self._rows.append(np.empty((BLOCK, len(COLUMNS))))
        self._layers.append(self._filling)

    def _note_loop(self, step: int, loop: Loop) -> None:
        loop = without_skip(loop)
        if not self.loops or self.loops[-1][1] != loop:
            self.loops.append((step, loop))

    def _layer_rows(self, index: int, block: int, first: int, last: int) -> np.ndarray:
        held = self._layers[block]  # read once: the writer may spill it meanwhile
        return held.rows(index, first, last) if isinstance(held, SpilledArray) else held[index, first:last]


def deviations(norms: np.ndarray, means: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return the standard deviation of tensors of so many entries from their L2 norm and their mean, all float64;
    UNKNOWN where the mean is."""
    with np.errstate(invalid="ignore", over="ignore"):
        variances = norms**2 / np.maximum(sizes, 1) - means**2
        spread = np.where(variances < (LEAST_DEVIATION * means) ** 2, 0.0, np.sqrt(variances))
    return np.where(known_mask(means), spread, UNKNOWN)


def up_to(history: History) -> str:
    """Return the latest step in words, for a figure computed over the steps before it."""
    return f"up to step {len(history) - 1:,}"
