"""The frame of the window: top bar, figures bar, columns and pages, menus, first paint and help. The content of a page
is in the folder of its feature; side_panel.py creates the panels. May use core, session and gui; never
gui/late_imports.py, gui/window.py or gui/app.py."""
