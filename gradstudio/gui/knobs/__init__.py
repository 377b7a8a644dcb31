"""The knobs on the left: the form with its rows, editors and tooltips, the dialog for twins, presets as menu and text.
What a knob is stands in core/knobs.py and core/experiment.py.
May use core, session, gui/services, gui/widgets, gui/user_settings.py and gui/theme.py.
"""
