"""Every private or deprecated part of torch that the engine uses, and the plain path through public API beside it. No
other file of the engine may use a private name of torch. May use engine/notices.py; knows nothing else of the engine.

A part is tried once in a process, when it is first needed (internal.py; all of them: parts.py). Where it is missing or
does something else than expected, the functions here take the plain path: training goes on with the same numbers, and
a notice says what is lost."""
