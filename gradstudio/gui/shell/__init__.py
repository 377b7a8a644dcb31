"""The frame of the window: top bar, figures bar, columns and pages, menus, first paint and help.
What a page shows is in the folder of its feature; side_panel.py alone knows the panels.
May use gui/commands (menus.py), gui/services, gui/widgets and the theme.
"""
