"""The page Gauges: quantities that are measured on demand, each with its picture and its reading.
May use core, session, gui/widgets and gui/theme.py."""
