"""Exporting from the window: file dialogs, and the menu of a plot with its figure and its data.
May use core, session, gui/services, gui/plots, gui/drawing, gui/widgets and gui/theme.py."""
