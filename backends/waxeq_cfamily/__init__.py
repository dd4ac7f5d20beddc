"""Text that generated kernels of the C family share: C for CPUs, and CUDA C++."""

KERNEL_TEXT = True
"""What is here is part of the text of the kernels that are made with it."""
