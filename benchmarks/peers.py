"""The same model under other compilers, on the same arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from waxeq.cli.peers import as_jax, swapped

ONNX_GRAPHS: Mapping[str, str] = {
    "abv": "(float[2000,2000] a, float[2000,2000] b, float[2000] v) => (float[2000] out) "
    "{ t = MatMul(a, b) out = MatMul(t, v) }",
    "sum_ab": "(float[2000,2000] a, float[2000,2000] b) => (float out) "
    "{ t = MatMul(a, b) out = ReduceSum<keepdims = 0>(t) }",
    "ab_plus_ac": "(float[2000,2000] a, float[2000,2000] b, float[2000,2000] c) => (float[2000,2000] out) "
    "{ s = MatMul(a, b) t = MatMul(a, c) out = Add(s, t) }",
    "uvt_minus_x_v": "(float[2000,50] u, float[2000,50] v, float[2000,2000] x) => (float[2000,50] out) "
    "{ w = Transpose<perm = [1, 0]>(v) s = MatMul(u, w) d = Sub(s, x) out = MatMul(d, v) }",
    "matrix_chain": "(float[2000,50] a, float[50,2000] b, float[2000,2000] c, float[2000,1] d) => "
    "(float[2000,1] out) { s = MatMul(a, b) t = MatMul(s, c) out = MatMul(t, d) }",
}
"""The linear-algebra set in ONNX's own text form. Argument names and shapes are those of the examples."""


def jax_jit(fn: Callable[..., object], inputs: Mapping[str, np.ndarray]) -> Callable[[], object]:
    """The function under `jax.jit`, its `np` being `jax.numpy`, on arrays already on the device."""
    import jax

    jax.config.update("jax_enable_x64", any(np.asarray(a).dtype == np.float64 for a in inputs.values()))
    compiled = jax.jit(swapped(fn, as_jax))
    arrays = {n: jax.device_put(a) for n, a in inputs.items()}
    return lambda: jax.block_until_ready(compiled(**arrays))


def onnx_runtime(name: str, inputs: Mapping[str, np.ndarray], threads: int) -> Callable[[], object]:
    """The example's ONNX graph in ONNX Runtime with all its optimizations."""
    import onnx
    import onnxruntime

    text = f'<ir_version: 9, opset_import: ["" : 18]> {name} {ONNX_GRAPHS[name]}'
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    model = onnx.parser.parse_model(text)
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    given = {x.name: np.ascontiguousarray(inputs[x.name]) for x in session.get_inputs()}
    return lambda: session.run(None, given)
