"""What things cost: timings that were measured, and estimates made from them."""
