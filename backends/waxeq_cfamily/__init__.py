"""Fused loop nests as C-family text: what the native and the CUDA backend share."""
