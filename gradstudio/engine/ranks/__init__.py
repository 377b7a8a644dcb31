"""One experiment on several ranks: processes that train together in torch's DistributedDataParallel.

`rank_trainer.py` is the work of each of them, `collectives.py` the calls in which it waits for the others,
`rank_replay.py` repeats a step of one, `rank_process.py` is its main loop, `crew.py` starts and supervises them, and
`ranked_trainer.py` is the trainer for the run's driver. Imported only for more than one rank. May use core and engine;
nothing else in engine uses it."""
