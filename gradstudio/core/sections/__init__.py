"""Every knob of the program, declared once, in the section that its dotted name begins with.

`loop_knobs.py`: what a training loop does with the gradient of a batch, and what it may do wrong. `task_knobs.py`: the
model, its data and its loss. `place_knobs.py`: on how many ranks, on which device, and for how long.
May use core/knobs.py, core/combinations.py and core/ranks_allowed.py."""
