"""The memory use of a training step, computed before it is made and without allocating it: the plain loop
(plain_loop.py) runs on tensors that have a shape and no memory (estimate.py) while their storages are counted
(tally.py); cures.py searches for changes that lower the peak. child.py does all that in a separate process.
May use core, program and engine; never engine/trainer.py. The free memory of a machine is in engine/memory.py."""
