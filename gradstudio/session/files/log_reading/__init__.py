"""A finished training, read from its log: column_names.py identifies the columns, log_run.py makes a run of them,
missing_columns.py says what the rules could not see. May use core, session/files/curve_import and session/record."""
