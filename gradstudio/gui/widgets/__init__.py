"""Small widgets and helpers that any panel may use.
May use core, session/course (its formulas), session/record (the viewed run) and gui/theme.py; knows no panel."""
