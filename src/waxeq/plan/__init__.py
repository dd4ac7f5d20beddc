"""Plans: kernels in order, on buffers at fixed offsets. What is saved, shown, checked and run."""
