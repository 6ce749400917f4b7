"""Who proposes candidate tasks: one module per proposer."""
