"""The page Branches: the tree of branches, the dialogs for rewinding, the overlays of a parent and a twin.
May use core, session, gui/runs (a branch is listed like a run), gui/services, gui/widgets, gui/drawing,
gui/user_settings.py and gui/theme.py."""
