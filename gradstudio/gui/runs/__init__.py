"""The page Runs: the library as a list, its search, notes and tags, the comparison of runs, stored runs as overlays.
May use core, session, gui/services, gui/widgets, gui/drawing, gui/user_settings.py and gui/theme.py."""
