"""Faults drawn at random: healthy runs from declared ranges, and what is done to them. The benchmark of the diagnosis
and the exams are made of them. May use core; nothing here trains."""
