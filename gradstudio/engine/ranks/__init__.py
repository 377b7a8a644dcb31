"""One experiment on several ranks: processes that train together in torch's DistributedDataParallel.

`rank_trainer.py` is what each of them does, `collectives.py` the calls in which it waits for the others,
`rank_replay.py` makes a step of one again, `rank_process.py` is its life,
`crew.py` starts and watches over them, and `ranked_trainer.py` is the trainer that a run is driven with. Imported only
where there is more than one rank. May use core and engine; nothing else in engine uses it."""
