"""The audit itself: source files in, metrics, findings and a Markdown report out; it knows nothing of ledgers."""
