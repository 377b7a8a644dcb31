"""The page Code: the exported program of the current knobs, with the changed lines marked.
May use core, session, gui/widgets and gui/theme.py."""
