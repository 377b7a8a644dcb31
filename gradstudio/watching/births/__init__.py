"""The birth of a non-finite value: passes that are kept and replayed, loss code, skipped batches.
May use core, engine, watching/hooks and watching/script."""
