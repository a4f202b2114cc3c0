"""The lab: one approval, real processes that die, and what the ledger says afterwards."""
