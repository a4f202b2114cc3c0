"""RunLedger as people see it: configuration and wiring."""
