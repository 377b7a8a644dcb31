"""A crash file in the window: its contents, its fatal step operation by operation, and fixes. Its steps are replayed by
another process.
May use core, session/files, gui/plots, gui/services, gui/widgets and gui/theme.py."""
