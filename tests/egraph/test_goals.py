"""What the rules must find: each goal is a form that the e-graph gives a program, by generic rules."""

from __future__ import annotations

import numpy as np
import pytest


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


# -- a) scale out of a matmul


def test_a_number_leaves_a_product(forms):
    found = forms(lambda a, b: (2.5 * a) @ b, a=(4, 5), b=(5, 3))
    assert found.of("(Mul (Num 2.5 d) (Sum k (Mul @a @b)))")


def test_a_scalar_leaves_a_product(forms):
    found = forms(lambda s, a, b: (s * a) @ b, s=(), a=(4, 5), b=(5, 3))
    assert found.of("(Mul @s (Sum k (Mul @a @b)))")


def test_a_scale_of_rows_leaves_a_product(forms):
    found = forms(lambda s, a, b: (s * a) @ b, s=(4, 1), a=(4, 5), b=(5, 3))
    assert found.of("(Mul @s (Sum k (Mul @a @b)))")


def test_a_scale_of_columns_moves_into_the_weights(forms):
    found = forms(lambda x, w, s: (x @ w) * s, "w s", x=(4, 5), w=(5, 3), s=(3,))
    assert any(found.weights_only(e["folded"]) for e in found.of("(Sum k (Mul @x folded))"))


# -- b) RMSNorm folding


def rms_norm(x, gain, w):
    scale = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-6)
    return (x / scale * gain) @ w


def test_the_gain_of_a_norm_folds_into_the_weights_and_the_division_leaves_the_product(forms):
    found = forms(rms_norm, "gain w", x=(4, 6), gain=(6,), w=(6, 3))
    ways = found.of('(Zip "div" (Sum k (Mul @x (Mul @gain @w))) (Map "sqrt" v))')
    assert ways and any(found.weights_only(e["g"]) for e in found.of('(Zip "div" (Sum k (Mul @x g)) r)'))


def test_the_shift_of_a_norm_becomes_a_bias_after_the_product(forms):
    def model(x, g, b, w, c):
        centered = x - np.mean(x, axis=-1, keepdims=True)
        return (centered / np.sqrt(np.mean(centered * centered, axis=-1, keepdims=True) + 1e-5) * g + b) @ w + c

    found = forms(model, "g b w c", x=(4, 6), g=(6,), b=(6,), w=(6, 3), c=(3,))
    ways = found.of('(Add (Zip "div" (Sum k (Mul (Zip "sub" @x mean) (Mul @g @w))) s) shift)')
    assert any(found.weights_only(e["shift"]) for e in ways)


def test_a_scale_after_a_relu_reaches_the_weights(forms):
    found = forms(lambda x, w: np.maximum(x @ w, 0) * 2.0, "w", x=(4, 5), w=(5, 3))
    assert any(found.weights_only(e["w"]) for e in found.of('(Zip "max" (Sum k (Mul @x w)) z)'))


def batch_norm(x, w, b, mean, variance, gamma, beta):
    return (x @ w + b - mean) / np.sqrt(variance + 1e-5) * gamma + beta


def test_a_batch_norm_folds_into_weights_and_bias(forms):
    sizes = dict.fromkeys(("b", "mean", "variance", "gamma", "beta"), (3,))
    found = forms(batch_norm, "w b mean variance gamma beta", x=(4, 5), w=(5, 3), **sizes)
    ways = found.of("(Add (Sum k (Mul @x scale)) shift)")
    assert any(found.weights_only(e["scale"]) and found.weights_only(e["shift"]) for e in ways)


# -- c) shared factors


def test_products_with_a_shared_left_factor_become_one(forms):
    found = forms(lambda x, a, b: x @ a + x @ b, x=(4, 5), a=(5, 3), b=(5, 3))
    assert found.of("(Sum k (Mul @x (Add @a @b)))")


def test_products_with_a_shared_right_factor_become_one(forms):
    found = forms(lambda x, y, a: x @ a - y @ a, x=(4, 5), y=(4, 5), a=(5, 3))
    assert found.of('(Sum k (Mul @a (Zip "sub" @x @y)))')


def test_a_shared_factor_is_found_across_another_term(forms):
    found = forms(lambda x, a, b, c: x @ a + c + x @ b, x=(4, 5), a=(5, 3), b=(5, 3), c=(4, 3))
    assert found.of("(Add (Sum k (Mul @x (Add @a @b))) @c)")


def test_an_adapter_folds_into_the_weights(forms):
    found = forms(
        lambda x, w, down, up: x @ w + 2.0 * (x @ down @ up), "w down up", x=(4, 6), w=(6, 5), down=(6, 2), up=(2, 5)
    )
    assert any(found.weights_only(e["w"]) for e in found.of("(Sum k (Mul @x w))"))


# -- d) products of one input merged


def test_query_key_and_value_are_slices_of_one_product(forms):
    found = forms(lambda x, q, k, v: (x @ q, x @ k, x @ v), "q k v", x=(4, 6), q=(6, 3), k=(6, 3), v=(6, 5))
    whole = []
    for root in ("out0", "out1", "out2"):
        ways = found.of("(Slice n p s 1 (Sum k (Mul @x w)))", root)
        whole.append({(e["n"], e["w"]) for e in ways if found.weights_only(e["w"])})
    shared = set.intersection(*whole)
    assert any(found.snapshot.sizes[n] == 11 for n, _ in shared)


def test_gate_and_projection_are_slices_of_one_product(forms):
    found = forms(lambda x, g, u: np.tanh(x @ g) * (x @ u), "g u", x=(4, 6), g=(6, 5), u=(6, 5))
    (way, *_) = found.of('(Mul (Map "tanh" (Slice n p s 1 (Sum k (Mul @x w)))) (Slice n p t 1 (Sum k (Mul @x w))))')
    assert {way["s"], way["t"]} == {0, 5} and found.weights_only(way["w"])


# -- e) chains


def test_a_product_with_a_vector_is_regrouped(forms):
    found = forms(lambda a, b, v: a @ b @ v, a=(4, 5), b=(5, 6), v=(6,))
    assert found.of("(Sum j (Mul @a (Sum k (Mul @b @v))))")


@pytest.mark.parametrize(
    "form",
    [
        "(Sum i (Mul (Sum j (Mul (Sum k (Mul @a @b)) @c)) @d))",
        "(Sum i (Mul (Sum j (Mul @a (Sum k (Mul @b @c)))) @d))",
        "(Sum i (Mul @a (Sum j (Mul (Sum k (Mul @b @c)) @d))))",
        "(Sum i (Mul @a (Sum j (Mul @b (Sum k (Mul @c @d))))))",
        "(Sum i (Mul (Sum j (Mul @a @b)) (Sum k (Mul @c @d))))",
    ],
)
def test_every_order_of_a_chain(forms, form):
    found = forms(lambda a, b, c, d: a @ b @ c @ d, a=(4, 5), b=(5, 6), c=(6, 3), d=(3, 2))
    assert found.of(form)


def test_two_layers_of_weights_fold_for_a_vector(forms):
    found = forms(lambda x, v, w: (x @ v) @ w, "v w", x=(5,), v=(5, 6), w=(6, 4))
    assert any(found.weights_only(e["w"]) for e in found.of("(Sum k (Mul @x w))"))


def test_a_chain_through_a_gram_matrix(forms):
    found = forms(lambda u, v: (u @ v.T) @ v, u=(7, 2), v=(6, 2))
    assert found.of("(Sum i (Mul (Ren r i @u) (Sum m (Mul @v (Ren r i @v)))))")


def test_the_gradient_step_of_a_factorisation(forms):
    found = forms(lambda u, v, x: (u @ v.T - x) @ v, u=(7, 2), v=(6, 2), x=(7, 6))
    assert found.of('(Zip "sub" (Sum i (Mul (Ren r i @u) (Sum m (Mul @v (Ren r i @v))))) (Sum m (Mul @v @x)))')


def test_a_scaled_gradient_step_of_a_factorisation(forms):
    found = forms(lambda u, v, x: ((u @ v.T - x) / 7.0) @ v, u=(7, 2), v=(6, 2), x=(7, 6))
    inside = '(Zip "sub" (Sum i (Mul (Ren r i @u) (Sum m (Mul @v (Ren r i @v))))) (Sum m (Mul @v @x)))'
    assert found.of(f"(Mul c {inside})")


# -- f) division after the product with the values


def test_the_division_of_a_softmax_follows_the_product_with_the_values(forms):
    found = forms(lambda q, k, v: softmax(q @ k.T / 2.0) @ v, q=(4, 3), k=(5, 3), v=(5, 6))
    assert found.of('(Zip "div" (Sum s (Mul (Map "exp" z) @v)) (Sum s (Map "exp" z)))')


# -- sums, traces, slices of products


def test_the_sum_of_a_product_needs_no_product(forms):
    found = forms(lambda a, b: np.sum(a @ b), a=(4, 5), b=(5, 3))
    assert found.of("(Sum k (Mul (Sum i @a) (Sum j @b)))")


def test_a_slice_of_a_product_slices_its_factor(forms):
    found = forms(lambda a, b: (a @ b)[1:3], a=(5, 6), b=(6, 4))
    assert found.of("(Sum k (Mul (Slice i n 1 1 @a) @b))")


def test_a_row_of_a_product_is_a_row_of_its_factor(forms):
    found = forms(lambda a, b: (a @ b)[2], a=(5, 6), b=(6, 4))
    assert found.of("(Sum k (Mul (Gather i z @a) @b))")


def test_the_trace_of_a_product_is_a_sum_of_elements(forms):
    found = forms(lambda a, b: np.trace(a @ b), a=(4, 5), b=(5, 4))
    assert found.of("(Sum k (Sum m (Mul (Ren i k @a) (Ren j k @b))))")


def test_reshapes_that_undo_each_other_vanish(forms):
    found = forms(lambda x, w: (x.reshape(6, 5) @ w).reshape(2, 3, 4), x=(2, 3, 5), w=(5, 4))
    assert found.of("(Sum k (Mul (Ren a b (Ren c d @x)) @w))") or found.of("(Sum k (Mul @x @w))")


def test_merged_heads_are_contracted_head_by_head(forms):
    def model(x, w):
        return x.transpose(1, 0, 2).reshape(4, 6) @ w

    found = forms(model, "w", x=(2, 4, 3), w=(6, 5))
    assert found.of("(Sum h (Sum d (Mul @x (Split n h d @w))))")


def test_a_function_of_rows_of_a_table_is_a_table_of_its_own(forms):
    found = forms(
        lambda ids, table: np.tanh(np.take(table, ids, axis=0)), "table", ids=np.array([0, 2, 1]), table=(5, 4)
    )
    assert found.of('(Gather k @ids (Map "tanh" @table))')


# -- functions


def test_silu_uses_the_sigmoid(forms):
    found = forms(lambda x: x / (1 + np.exp(-x)), x=(4, 5))
    assert found.of('(Mul @x (Map "sigmoid" @x))')


def test_the_tanh_form_of_gelu_uses_the_sigmoid(forms):
    found = forms(lambda x: 0.5 * x * (1 + np.tanh(0.8 * x)), x=(4, 5))
    assert found.of('(Mul @x (Map "sigmoid" y))')


def test_the_logarithm_of_a_softmax_needs_no_quotient(forms):
    found = forms(lambda x: np.log(softmax(x)), x=(4, 5))
    assert found.of('(Zip "sub" (Zip "sub" @x m) (Map "log" s))')


def test_two_values_of_an_odd_function_share_the_work(forms):
    found = forms(lambda x: (1 + np.tanh(x / 2), 1 + np.tanh(-x / 2)), x=(4, 5))
    (first, *_) = found.of('(Add o (Map "tanh" y))', "out0")
    assert any(e["y"] == first["y"] for e in found.of('(Zip "sub" o (Map "tanh" y))', "out1"))


def test_distances_of_pairs_are_a_product_where_they_may_be_approximate(forms):
    def squares(x, y):
        d = x[:, None, :] - y[None, :, :]
        return np.sum(d * d, axis=-1)

    form = '(Zip "max" (Add s (Mul (Num -2.0 d) (Sum k (Mul @x @y)))) (Num 0.0 d))'
    assert forms(squares, "", "", "approximate", x=(4, 6), y=(3, 6)).of(form)
    assert not forms(squares, x=(4, 6), y=(3, 6)).of(form)
