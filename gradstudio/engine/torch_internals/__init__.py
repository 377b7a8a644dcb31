"""Every private or deprecated part of torch that the engine uses, with the fallback through public API. No other file
of the engine may use a private name of torch. May use engine/notices.py; knows nothing else of the engine.

A part is tried once in a process, when it is first needed (internal.py; all of them: parts.py). If it is missing or
does something unexpected, the functions here use the fallback: training goes on with the same numbers, and a notice
says what is lost."""
