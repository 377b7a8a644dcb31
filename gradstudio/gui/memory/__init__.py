"""The page Memory: the memory use of one step of the experiment, computed in a separate process while the page is
visible. May use core, session/footprint, session/own_model.py, session/record, gui/services, gui/widgets and
gui/theme.py."""
