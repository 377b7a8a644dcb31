"""The gallery: every preset as a card, with a picture of its run, and the user's finished lessons.
May use core, session, gui/services, gui/widgets, gui/user_settings.py and gui/theme.py."""
