"""A crash file in the window: what it holds, its fatal step operation by operation, and fixes. Its steps are made again
by another process.
May use core, session/files, gui/plots, gui/services, gui/widgets and gui/theme.py.
"""
