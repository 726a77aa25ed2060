"""How Java prints floating-point numbers, which is how they stand in partition paths."""

import math
import struct


def java_float(value: float, *, single: bool) -> str:
    """Return a float or double as Java's `toString` gives it: 1.5, 1.0E300, -0.0, NaN, Infinity.

    Args:
        value: the number.
        single: whether it is a 32-bit float, whose shortest digits are fewer.
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    digits, exponent = _shortest(abs(value), single)
    if value == 0 or -3 <= exponent < 7:
        return sign + _plain(digits, exponent)
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def _shortest(value: float, single: bool) -> tuple[str, int]:
    """Return the fewest digits that give the number back, and the exponent of the first of them."""
    text = f"{value:e}" if value == 0 else _shortest_single(value) if single else f"{value!r}"
    mantissa, _, exponent = text.lower().partition("e")
    whole, _, fraction = mantissa.partition(".")
    point = len(whole) - 1 + int(exponent or 0)
    digits = (whole + fraction).lstrip("0")
    point -= len(whole + fraction) - len(digits)
    return digits.rstrip("0") or "0", point if digits else 0


def _shortest_single(value: float) -> str:
    for precision in range(8):
        text = f"{value:.{precision}e}"
        if _as_single(float(text)) == value:
            return text
    return f"{value:.8e}"


def _as_single(value: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.inf


def _plain(digits: str, exponent: int) -> str:
    if exponent < 0:
        return f"0.{'0' * (-exponent - 1)}{digits}"
    padded = digits.ljust(exponent + 1, "0")
    return f"{padded[: exponent + 1]}.{padded[exponent + 1 :] or '0'}"
