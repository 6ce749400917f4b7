"""Programs that run inside the box: standard library and pytest only."""
