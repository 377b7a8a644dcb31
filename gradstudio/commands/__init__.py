"""The commands of `gradstudio` that are longer than a few lines, one file for each; exit codes are in exit_codes.py.
What takes time to import is imported by the command that needs it.
May use session, program, crash and core; never gui or torch.
"""
