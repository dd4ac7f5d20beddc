"""Looking at what was found: reports, explanations."""
