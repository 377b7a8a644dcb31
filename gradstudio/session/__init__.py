"""Runs: what trains, what is recorded, what is handed on. No Qt; torch only through the engine, imported when a run starts."""
