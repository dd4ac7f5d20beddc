"""Memory of a plan: lifetimes, reuse, one arena, known before anything runs."""
