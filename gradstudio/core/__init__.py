"""The vocabulary: plain data. numpy, pydantic and the standard library; no torch, no Qt."""
