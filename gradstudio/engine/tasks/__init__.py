"""What can be learned, by the name that problem.task gives it."""

from gradstudio.engine.tasks.digits import Digits

TASKS: dict[str, type[Digits]] = {"digits": Digits, "sequential_digits": Digits}
