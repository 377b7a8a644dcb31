"""The page Diagnosis: state and findings, provenance, the fixes that were tried, the lesson and its check marks. The
sentences come from core/diagnosis/ and session/words/.
May use core, session, gui/services, gui/widgets, gui/drawing, gui/user_settings.py and gui/theme.py."""
