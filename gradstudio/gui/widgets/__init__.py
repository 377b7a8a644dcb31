"""Small widgets and helpers that any panel may use.
May use core, session/course (its formulas) and gui/theme.py; knows no panel.
"""
