"""Where a value was born that is not finite: passes that are kept and made again, loss code, skipped batches.
May use core, engine, watching/hooks and watching/script.
"""
