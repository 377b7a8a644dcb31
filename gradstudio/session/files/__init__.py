"""Files made from runs: rows, summaries, comparisons, reports (report/), TensorBoard logs (tensorboard/).
Curves of other programs are read in curve_import/.
May use core, program and session; never session/map or session/simulator.py."""
