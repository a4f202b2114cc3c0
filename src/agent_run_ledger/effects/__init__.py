"""The effect half: actions that must happen once, from their proposal to the evidence of what became of them."""
