"""Tasks: the data to learn from, one per file, by their name in problem.task. Here are the data and the rules by which
they are drawn; losses are in engine/step/losses.py.
May use core, engine/devices.py, engine/generators.py and engine/shape.py; never engine/models, engine/step or
engine/trainer.py."""

from gradstudio.engine.tasks.adding import Adding
from gradstudio.engine.tasks.bandit import Bandit
from gradstudio.engine.tasks.characters import Characters
from gradstudio.engine.tasks.copy import Copy
from gradstudio.engine.tasks.digits import Digits
from gradstudio.engine.tasks.pole import Pole
from gradstudio.engine.tasks.ring import Ring
from gradstudio.engine.tasks.spirals import Spirals
from gradstudio.engine.tasks.task import Task

TASKS: dict[str, type[Task]] = {
    "digits": Digits,
    "sequential_digits": Digits,
    "adding": Adding,
    "copy": Copy,
    "characters": Characters,
    "spirals": Spirals,
    "ring": Ring,
    "pole": Pole,
    "bandit": Bandit,
}
