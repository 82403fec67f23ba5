"""Scripts that run inside the target environment, by path; the tool itself never imports them."""
