"""A refund that happens once: an agent with and without the ledger, killed at the same place."""
