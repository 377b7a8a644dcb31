"""Exams in the window: exam_dialog.py takes one, making_dialog.py makes one, exam_files.py asks for their files. An
exam has plots of its own, so that nothing else in the window tells what is hidden.
May use core, session, gui/services, gui/widgets, gui/plots, gui/drawing and gui/knobs/editors.py."""
