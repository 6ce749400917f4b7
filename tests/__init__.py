"""A package, so that the one of this name in verl's wheel is not taken for it."""
