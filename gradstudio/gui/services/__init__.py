"""The dependencies of panels and controllers, in place of the window: the simulator's controller, the message bar, jobs
beside the GUI thread, files and the run library, and the context that contains them.
May use core, session, gui/widgets, gui/user_settings.py and gui/theme.py; knows no panel and no plot."""
