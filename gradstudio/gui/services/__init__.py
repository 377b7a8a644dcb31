"""What panels and controllers are given instead of the window: the simulator's controller, the message bar, background
jobs, the thread of the run library, and the context that holds them.
May use core, session, gui/widgets and gui/theme.py; knows no panel and no plot.
"""
