"""Multiplication by GELU, on which the hand-built transformer's shift rests."""

from __future__ import annotations

import math

import numpy as np

from openbook.theory.lemmas.check import Outcome, check


def _gelu(x: float) -> float:
    """x Φ(x), without cancellation near 0."""
    return 0.5 * x * (1 + math.erf(x / math.sqrt(2)))


@check(
    "gelu-product",
    "√(π/2)·(GELU(x+y) - GELU(x) - GELU(y)) = xy - xy(2x²+3xy+2y²)/6 + ...: relative error 7/6·N⁻² at x=y=1/N.",
    "algebra",
    "lem:gelu_mul",
    "The circular-shift algorithm uses √(2/π); √(π/2) is right. The remainder is of fourth order, xy(2x²+3xy+2y²)/6, "
    "not O(x³y³), so the MLP's relative error is O(N⁻²), not O(N⁻⁴).",
)
def gelu_product(*, seed: int, constant: float = math.sqrt(math.pi / 2), order: float = 2.0) -> Outcome:
    """Relative error at N = 10, 30, 100, 300: it falls with the stated order and its constant is the stated one."""
    points = [(1.0, 1.0), (1.0, -0.5), (0.3, 0.8)]
    sizes = (10, 30, 100, 300)
    orders, leading, at_100 = [], [], 0.0
    for x, y in points:
        errors = []
        for size in sizes:
            a, b = x / size, y / size
            made = constant * (_gelu(a + b) - _gelu(a) - _gelu(b))
            errors.append(abs(made / (a * b) - 1))
        orders.append(float(np.log(errors[0] / errors[2]) / np.log(sizes[2] / sizes[0])))
        expected = abs(2 * x * x + 3 * x * y + 2 * y * y) / 6
        leading.append(errors[2] * sizes[2] ** 2 / expected)
        at_100 = errors[2] if (x, y) == (1.0, 1.0) else at_100
    close = all(abs(o - order) < 0.05 for o in orders) and all(abs(c - 1) < 0.01 for c in leading)
    return Outcome(
        close,
        {"orders": orders, "leading": leading, "relative_error_at_100": at_100},
        f"relative error {at_100:.2e} at N=100, order {min(orders):.2f}..{max(orders):.2f}, leading term x"
        f"{min(leading):.3f}..{max(leading):.3f}",
        order,
    )
