"""Multiplication by GELU, on which the hand-built transformer's shift rests."""

from __future__ import annotations

import math

import numpy as np

from openbook.theory.lemmas.check import Outcome, section

check = section("The transformer")


def _gelu(x: float) -> float:
    """x Φ(x), without cancellation near 0."""
    return 0.5 * x * (1 + math.erf(x / math.sqrt(2)))


@check("gelu-product", "algebra", "lem:gelu_mul")
def gelu_product(*, seed: int, constant: float = math.sqrt(math.pi / 2), order: float = 2.0) -> Outcome:
    """√(π/2)·(GELU(x+y) - GELU(x) - GELU(y)) = xy - xy(2x²+3xy+2y²)/6 + ...: relative error 7/6·N⁻² at x=y=1/N.

    The relative error at N = 10 and 100 must fall with the stated order, and its constant must be the stated one.

    Remark: The circular-shift algorithm uses √(2/π); √(π/2) is right. The remainder is of fourth order,
    xy(2x²+3xy+2y²)/6, not O(x³y³), so the MLP's relative error is O(N⁻²), not O(N⁻⁴).
    """

    def relative_error(x: float, y: float) -> float:
        return abs(constant * (_gelu(x + y) - _gelu(x) - _gelu(y)) / (x * y) - 1)

    orders, leading, at_100 = [], [], []
    for x, y in ((1.0, 1.0), (1.0, -0.5), (0.3, 0.8)):
        at_10, error = relative_error(x / 10, y / 10), relative_error(x / 100, y / 100)
        orders.append(float(np.log(at_10 / error) / np.log(10)))
        leading.append(error * 100**2 / (abs(2 * x * x + 3 * x * y + 2 * y * y) / 6))
        at_100.append(error)
    close = all(abs(o - order) < 0.05 for o in orders) and all(abs(c - 1) < 0.01 for c in leading)
    measured = (
        f"relative error {at_100[0]:.2e} at N=100, order {min(orders):.2f}..{max(orders):.2f}, leading term x"
        f"{min(leading):.3f}..{max(leading):.3f}"
    )
    return Outcome(close, {"orders": orders, "leading": leading, "relative_error_at_100": at_100[0]}, measured, order)
