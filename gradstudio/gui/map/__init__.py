"""The page Map: where training holds, over two knobs, drawn from real runs that train in separate processes. May use
core, session/map, session/files/report, session/own_model.py, session/record, gui/services, gui/widgets and
gui/theme.py."""
