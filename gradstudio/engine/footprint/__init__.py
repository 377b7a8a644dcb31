"""What a training step takes of memory, worked out before it is made and without taking it: the plain loop
(plain_loop.py) runs on tensors that have a shape and no memory (estimate.py) while their storages are counted
(tally.py); cures.py looks for what would lower the peak. child.py does all that in a process of its own.
May use core, program and engine; never engine/trainer.py. What a machine has free is in engine/memory.py."""
