"""The runs of a script: rows and events into the library, and lines on stderr.
May use core, engine, crash, session, watching/hooks, watching/script, watching/measuring, watching/births,
watching/recorder, watching/steps and watching/ranks."""
