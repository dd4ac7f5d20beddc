"""What `python calibration/gpu_check.py` does on a machine with a GPU, and what it needs to be given for that."""
