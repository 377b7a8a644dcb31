"""The course: promises.py trains what a preset promises; questions.py and lesson_progress.py handle a lesson,
exam_making.py and exam_taking.py an exam, worksheet.py, handing_in.py and grading.py an exercise.
May use core, session/record, session/library, session/footprint, session/running and session/words; never session/files
(which is built from runs) or session/simulator.py."""
