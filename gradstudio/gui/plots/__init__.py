"""The plots, one per file: loss, gradient norm, layers, scale and rate, the difference of twins, the timeline. All
share one step axis, one cursor and one frame (step_frame.py); each names the columns that it draws.
May use core, session, gui/services, gui/drawing, gui/widgets, gui/user_settings.py and gui/theme.py; knows no panel and
not the window."""
