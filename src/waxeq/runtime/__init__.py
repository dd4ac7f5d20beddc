"""Running plans, timing them, saving them."""
