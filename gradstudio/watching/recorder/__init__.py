"""The flight recorder: the state of some steps ago and the passes since, as references if possible; and the crash file
that is written from them.
May use core, engine, session, crash, watching/hooks, watching/script, watching/measuring and watching/births."""
