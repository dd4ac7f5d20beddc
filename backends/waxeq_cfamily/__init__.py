"""Text that generated kernels of the C family share: C for CPUs, and CUDA C++."""
