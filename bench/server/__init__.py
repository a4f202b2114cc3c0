"""What a store at a PostgreSQL server costs, as ratios to a bare loop through the same driver."""
