"""Pure rules, values in and values out: no clock, no randomness, no input or output."""
