"""The knobs on the left: the form with its rows, editors and tooltips, the dialog for twins, presets as menu and text.
The knobs themselves are in core/knobs.py and core/sections/.
May use core, session, gui/services, gui/widgets, gui/user_settings.py and gui/theme.py."""
