"""The page Memory: what one step of the experiment would take, worked out in a process of its own while the page is in
sight. May use core, session/footprint, session/own_model.py, session/record, gui/services, gui/widgets and
gui/theme.py.
"""
