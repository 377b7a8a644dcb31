"""Rules and findings: their types, what the rules share, the ranking of findings, and the matching remedies.
The rules themselves are in core/rules/, one file each; their thresholds in core/rule_thresholds.py.
May use core; never core/rules, which is built on this folder."""
