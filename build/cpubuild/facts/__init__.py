"""What the host is: one module per subject, each a probe (text) and a pure parser (facts)."""
