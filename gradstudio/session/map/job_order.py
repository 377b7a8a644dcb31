"""The order in which the runs of a level are made: first the representatives of blocks over the whole area, some four
by four, then those of blocks half that size, and so on; among equals those near the current knobs. So the whole map is
visible coarsely at once, and the same cells are trained as in any other order."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gradstudio.session.map import refine
from gradstudio.session.map.map_plan import Job, Plan, Spot
from gradstudio.session.map.place import along


def coarse_first(plan: Plan, jobs: Sequence[Job]) -> list[Job]:
    """Return the jobs in the order in which they are submitted. A cell has all its seeds one after the other."""
    stages = refine.stages(plan.shape[1:])
    _, rows, columns = plan.shape
    across, up = (
        middle / 2 if (place := along(axis, plan.experiment[axis.knob])) is None else place
        for axis, middle in ((plan.x, columns), (plan.y, rows))
    )

    def rank(job: Job) -> tuple[int, float, Spot, int]:
        spot = job.spot
        away = math.hypot((spot.column + 0.5 - across) / columns, (spot.row + 0.5 - up) / rows)
        return int(stages[spot.row, spot.column]), round(away, 9), spot, job.seed

    return sorted(jobs, key=rank)
