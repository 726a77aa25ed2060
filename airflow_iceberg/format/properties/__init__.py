"""Table properties: names, kinds of values, defaults."""
