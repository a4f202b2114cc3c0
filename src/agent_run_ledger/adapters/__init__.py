"""How frameworks let a ledger in: one module each, which imports its framework only when it is used."""
