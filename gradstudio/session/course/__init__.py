"""The course: promises.py trains what a preset promises; questions.py and lesson_progress.py are about a lesson,
exam_making.py and exam_taking.py about an exam, worksheet.py, handing_in.py and grading.py about an exercise.
May use core, session/record, session/library, session/footprint, session/running and session/words; never session/files
(which is made of runs) or session/simulator.py."""
