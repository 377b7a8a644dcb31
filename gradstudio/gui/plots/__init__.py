"""One plot a file. All share one step axis, one cursor and one frame; each names the columns it draws."""
