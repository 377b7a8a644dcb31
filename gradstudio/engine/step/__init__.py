"""The parts of one optimizer step, one file each: accumulation, losses, precision, loss_scale, gradients, clipping,
optimizers, sharpness_aware, schedules; when its numbers are read (reading), its callbacks (observer), and requested
checks. The step itself, which calls them in order, is in engine/trainer.py.
May use core, engine/devices.py, engine/gauges, engine/generators.py, engine/models, engine/passes, engine/runtime.py,
engine/tasks and engine/torch_internals; never engine/trainer.py."""
