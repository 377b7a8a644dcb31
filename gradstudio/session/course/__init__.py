"""The course: promises.py trains what a preset promises; questions.py and lesson_progress.py are about a lesson,
exam_making.py and exam_taking.py about an exam, worksheet.py, handing_in.py and grading.py about an exercise.
May use record, library, footprint, running and words; never the files that are made of runs, or the simulator."""
