"""A multi-process training as one run: what the ranks send to rank 0, and how their figures become one row. Nothing
here takes part in a collective call, so no rank waits for another.
May use core, engine, session, watching/hooks, watching/script, watching/measuring, watching/births and watching/steps.
"""
