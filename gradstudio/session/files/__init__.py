"""Files that are made of runs: rows, summaries, comparisons, reports (report/), TensorBoard logs (tensorboard/).
Curves of other programs are read in curve_import/.
May use every other room of session, but not the simulator.
"""
