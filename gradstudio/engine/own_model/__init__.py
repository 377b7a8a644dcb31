"""Users' own models: a studio file is run here, and nowhere else in the program, and only after the user has agreed to
that (core/trust.py). A trainer uses it in place of a built-in task, network and loss.

May use core and engine; never engine/trainer.py."""
