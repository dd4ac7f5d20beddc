"""Attention of any number of queries, keys and heads, in the ways that flash.py has text for."""

from __future__ import annotations

from collections.abc import Mapping

from waxeq.backend.call import Call
from waxeq.ir.term import Term, postorder
from waxeq_cfamily.values import Unsupported
from waxeq_cupy.attended import Attention, found
from waxeq_cupy.flash import Way, Written, ways
from waxeq_cupy.gemm import Gemm
from waxeq_cupy.kernels import Work, decided, resolved
from waxeq_cupy.products import Product


class FlashAttention(Gemm):
    """Attention of any number of queries, keys and heads, by blocks of keys, in the way that suits their number."""

    name = "attention"
    sought = "cuda product of attention"

    def matches(self, meaning: Term) -> bool:
        """A query that is alone has no axis, so that its products have none that the other side lacks."""
        terms = tuple(postorder(meaning))
        products = sum(t.head == "Sum" and t.terms[0].head == "Mul" for t in terms)
        softened = any(t.head == "Red" and t.args[0] == "max" for t in terms)
        return super().matches(meaning) or (products > 1 and softened)

    def way(self, a: Attention) -> Way:
        """How one attention is made. Raises Unsupported."""
        return ways(a)[0]

    def differs(self, call: Call) -> bool:
        a = self.attention(call)
        return self.way(a) != FlashAttention().way(a)

    def attention(self, call: Call) -> Attention:
        """The attention that a call is. Raises Unsupported."""
        return decided(call, "cuda attention", lambda: found(resolved(call)))

    def find(self, call: Call) -> Product:
        return self.attention(call).product

    def _work(self, call: Call, aligned: bool) -> Work | None:
        try:
            a = self.attention(call)
            if call.out.elements == 0:
                return Work(())
            dtypes = tuple(v.dtype for v in call.operands)
            return Written(a, self.way(a), dtypes, frozenset(self.in_place(call)), aligned).work()
        except Unsupported:
            return None

    def features(self, call: Call) -> Mapping[str, float]:
        return {**super().features(call), "flops": self.attention(call).flops}


class TiledAttention(FlashAttention):
    """The same on tiles that have all keys."""

    name = "attention_tiled"
    variant_of = FlashAttention.name

    def way(self, a: Attention) -> Way:
        return Way(few=False)


class SplitAttention(FlashAttention):
    """The same on tiles that have some of the keys each."""

    name = "attention_split"
    variant_of = FlashAttention.name

    def way(self, a: Attention) -> Way:
        found = [w for w in ways(a) if not w.few and w.piece is not None]
        if not found:
            raise Unsupported("too few keys, or blocks enough")
        return found[0]


class FewAttention(FlashAttention):
    """The same for up to eight queries that share their keys, which are read once, without tensor cores."""

    name = "attention_few"
    variant_of = FlashAttention.name

    def way(self, a: Attention) -> Way:
        found = [w for w in ways(a) if w.few]
        if not found:
            raise Unsupported("many rows")
        return found[0]


KERNELS = (FlashAttention, TiledAttention, SplitAttention, FewAttention)
