"""The page Code: the exported program of the knobs as they are, with the changed lines marked.
May use core, session, gui/widgets and gui/theme.py.
"""
