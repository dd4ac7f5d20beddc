"""The search for a plan: what one optimization holds open, blocks, measuring what matters, the final trial."""
