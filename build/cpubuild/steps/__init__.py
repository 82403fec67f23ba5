"""The acts of a bootstrap, one module each; ``bootstrap`` decides which of them run."""
