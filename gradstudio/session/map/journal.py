"""The journal of a map: a SQLite file of its own (.map) with the plan, the environment and each cell as soon as it is
trained. After a kill no finished cell is lost, and no cell counts twice.

A file may be untrusted: nothing in it may execute, and anything that is not ours is rejected."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from gradstudio.core import files
from gradstudio.session.map import map_plan as plans
from gradstudio.session.map.map_plan import Job, Plan, PlanError, Spot
from gradstudio.session.map.outcome import OUTCOMES, CellResult

FORMAT = 1
APPLICATION = 0x47534D50  # "GSMP", in the head of the file
PATIENCE = 10.0  # seconds to wait for another program that writes
LONGEST = 8 << 20  # bytes of one text

# Floats are written as Python writes them, as SQLite turns NaN into NULL. The statements are part of the format.
_TABLES = (
    "CREATE TABLE about (name TEXT PRIMARY KEY, content TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE environments (id INTEGER PRIMARY KEY, content TEXT NOT NULL UNIQUE)",
    "CREATE TABLE cells (panel INTEGER NOT NULL, x INTEGER NOT NULL, y INTEGER NOT NULL, seed INTEGER NOT NULL, "
    "outcome TEXT NOT NULL, step INTEGER NOT NULL, loss TEXT NOT NULL, reached TEXT NOT NULL, seconds TEXT NOT NULL, "
    "message TEXT NOT NULL, run_again INTEGER NOT NULL, environment INTEGER NOT NULL REFERENCES environments (id), "
    "PRIMARY KEY (panel, x, y, seed)) WITHOUT ROWID",
)


class JournalError(OSError):
    """A file that is not a map, is damaged, cannot be written, or contains another plan. One line for the user."""


class JournalContent(NamedTuple):
    """The content of a journal."""

    plan: Plan
    results: dict[Job, CellResult]


class Journal:
    """A journal that is open for writing. Only the thread that opened it may use it."""

    def __init__(self, path: Path, plan: Plan, *, resume: bool) -> None:
        """Create a journal, or resume the existing one. JournalError if that is impossible: it exists and is not to be
        resumed, is not a map, or has another plan."""
        self.path, self._plan = path, plan
        if there := os.path.lexists(path):
            if not resume:
                raise JournalError(f"{path} is there already; --resume goes on with it")
            stored = load(path)
            if different := plans.difference(stored.plan, plan):
                raise JournalError(f"{path} has another plan: {different}")
            self.results = stored.results
        else:
            self.results: dict[Job, CellResult] = {}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if not there:
                _begin(path, plan)
            self._database = _connect(f"{path.absolute().as_uri()}?mode=rw")
            self._database.execute("PRAGMA journal_mode = WAL")
        except (OSError, sqlite3.Error) as fault:
            raise JournalError(f"{path} cannot be written: {files.reason(fault)}") from None

    def add(self, job: Job, trained: CellResult) -> CellResult:
        """Write a cell. Return the file's result for it: another program that continues the same file may have been
        faster."""
        spot = job.spot
        environment = json.dumps(trained.environment, sort_keys=True)
        try:
            with self._database:
                self._database.execute("INSERT OR IGNORE INTO environments (content) VALUES (?)", (environment,))
                number = self._database.execute("SELECT id FROM environments WHERE content = ?", (environment,))
                row = (
                    *(spot.panel, spot.column, spot.row, job.seed, trained.outcome, trained.step),
                    *(repr(value) for value in (trained.loss, trained.reached, trained.seconds)),
                    *(trained.message, int(trained.run_again), number.fetchone()[0]),
                )
                added = self._database.execute(f"INSERT OR IGNORE INTO cells VALUES ({','.join('?' * len(row))})", row)
                if not added.rowcount:
                    of_it = "WHERE (panel, x, y, seed) = (?, ?, ?, ?)"
                    ((_, trained),) = _cells(self._database, self._plan, of_it, row[:4])
        except (sqlite3.Error, ValueError) as fault:
            raise JournalError(f"{self.path} cannot be written: {files.reason(fault)}") from None
        self.results[job] = trained
        return trained

    def close(self) -> None:
        """Close the file: afterwards it is a single, complete file again."""
        with contextlib.suppress(sqlite3.Error):
            self._database.execute("PRAGMA journal_mode = DELETE")
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def load(path: Path) -> JournalContent:
    """Return the content of a map, even while another program writes it. JournalError if it is not one."""
    try:
        files.check_kind(path)
        if not path.exists():
            raise JournalError(f"there is no map {path}")
    except JournalError:
        raise
    except (OSError, ValueError) as fault:
        raise JournalError(f"{path} cannot be read: {files.reason(fault)}") from None
    try:
        with contextlib.closing(_open_to_read(path)) as database:
            _check(database, path)
            return _read(database, path)
    except sqlite3.OperationalError as fault:
        raise JournalError(f"{path} cannot be read: {files.reason(fault)}") from None
    except (sqlite3.Error, ValueError, KeyError, TypeError, IndexError, RecursionError) as fault:
        raise JournalError(f"{path} is no map of GradStudio, or it is damaged ({files.reason(fault)[:120]})") from None


def _connect(uri: str) -> sqlite3.Connection:
    database = sqlite3.connect(uri, uri=True, timeout=PATIENCE)
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
    database.execute("PRAGMA trusted_schema = OFF")
    database.execute("PRAGMA synchronous = NORMAL")
    return database


def _open_to_read(path: Path) -> sqlite3.Connection:
    uri = path.absolute().as_uri()
    database = _connect(f"{uri}?mode=ro")
    try:
        database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:  # in a folder that is not writable for the files that WAL needs
        database.close()
        database = _connect(f"{uri}?mode=ro&immutable=1")
    return database


def _begin(path: Path, plan: Plan) -> None:
    """Write a journal without cells, atomically."""
    from gradstudio import __version__

    about = {"plan": json.dumps(plan.as_json()), "gradstudio": __version__}
    with files.temporary_folder(path.parent) as folder:
        written = Path(folder, path.name)
        with contextlib.closing(sqlite3.connect(written)) as database, database:
            for statement in _TABLES:
                database.execute(statement)
            database.execute(f"PRAGMA application_id = {APPLICATION}")
            database.execute(f"PRAGMA user_version = {FORMAT}")
            database.executemany("INSERT INTO about VALUES (?, ?)", about.items())
        _rename(written, path)


def _rename(written: Path, path: Path) -> None:
    """Give a complete file its name. FileExistsError if another program has created it meanwhile."""
    try:
        os.link(written, path)
    except FileExistsError:
        raise
    except (OSError, AttributeError):  # a file system without links, such as a USB stick
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        os.replace(written, path)


def _check(database: sqlite3.Connection, path: Path) -> None:
    """Raise JournalError for a file that is not ours, or of another format."""
    kind = database.execute("PRAGMA application_id").fetchone()[0]
    version = database.execute("PRAGMA user_version").fetchone()[0]
    if kind != APPLICATION:
        raise JournalError(f"{path} is no map of GradStudio")
    if version != FORMAT:
        raise JournalError(f"{path} has format {version}, and this GradStudio knows {FORMAT}")
    statements = database.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    if sorted(sql for (sql,) in statements) != sorted(_TABLES):
        raise JournalError(f"{path} is no map of GradStudio, or it is damaged (it has other tables)")
    if (fault := database.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
        raise JournalError(f"{path} is damaged ({fault[:120]})")


def _read(database: sqlite3.Connection, path: Path) -> JournalContent:
    about = dict(database.execute("SELECT name, content FROM about"))
    try:
        plan = plans.from_json(json.loads(about["plan"]), path)
    except PlanError as fault:
        raise ValueError(f"its plan: {fault}") from None
    return JournalContent(plan, dict(_cells(database, plan)))


def _cells(
    database: sqlite3.Connection, plan: Plan, which: str = "", values: Sequence[Any] = ()
) -> Iterator[tuple[Job, CellResult]]:
    """Yield the cells of a plan that are in a file, or those selected by a condition. ValueError for an invalid
    cell."""
    environments = {number: _texts(json.loads(text)) for number, text in database.execute("SELECT * FROM environments")}
    panels, rows, columns = plan.shape
    for panel, x, y, seed, outcome, step, loss, reached, seconds, message, again, number in database.execute(
        f"SELECT * FROM cells {which}", values
    ):
        whole = all(type(each) is int for each in (panel, x, y, seed, step))
        inside = whole and 0 <= panel < panels and 0 <= x < columns and 0 <= y < rows and 0 <= seed < plan.seeds
        if not inside or outcome not in OUTCOMES or not isinstance(message, str) or not math.isfinite(float(seconds)):
            raise ValueError(f"its cell {panel}, {x}, {y}")
        trained = CellResult(
            outcome, step, float(loss), float(reached), float(seconds), message, environments[number], bool(again)
        )
        yield Job(Spot(panel, x, y), seed), trained


def _texts(content: Any) -> dict[str, str]:
    return {str(name): str(value) for name, value in content.items()}


def worker_seconds(results: dict[Job, CellResult]) -> float:
    """Return the total seconds that workers spent on the cells."""
    return math.fsum(trained.seconds for trained in results.values())
