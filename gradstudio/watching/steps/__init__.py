"""The observations, assembled into the steps of one optimizer, with the settings that they are made with.
May use core, engine, session, watching/hooks, watching/script, watching/measuring, watching/births and
watching/recorder."""
