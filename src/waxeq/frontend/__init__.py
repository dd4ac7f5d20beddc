"""Front doors: from Python functions over arrays to graphs."""
