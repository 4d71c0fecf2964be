"""The symbols that characters are written with. Alphabet i takes the i-th run of n symbols of one fixed list."""

from __future__ import annotations

import functools

from openbook.base.errors import InputError

_LATIN = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_GREEK = "αβΓγΔδεζηΘθικΛλμνΞξΠπρΣσςτυΦφχΨψΩω"  # capitals that look Latin are left out
_DEVANAGARI = "अआइईउऊएऐओऔकखगघचछजझटठडढणतथदधनपफबभमयरलवशषसह"
_CYRILLIC = "БбвгДдЖжЗзИийЛлмнПптУуФфЦцЧчШшЩщЪъЫыьЭэЮюЯя"
_ARMENIAN = "".join(map(chr, range(0x561, 0x587)))
_GEORGIAN = "".join(map(chr, range(0x10D0, 0x10F1)))
_HEBREW = "".join(map(chr, range(0x5D0, 0x5EB)))
_KANA = "".join(chr(c) for c in range(0x3041, 0x3094)) + "".join(chr(c) for c in range(0x30A1, 0x30F4))
SYMBOLS = _LATIN + _GREEK + _DEVANAGARI + _CYRILLIC + _ARMENIAN + _GEORGIAN + _HEBREW + _KANA


def check_size(depth: int, chars: int) -> None:
    """Refuse a depth or alphabet size for which there is no task."""
    if depth < 1:
        raise InputError(f"depth is {depth}, but a codebook needs at least one phrasebook: use a depth of 1 or more")
    if not 2 <= chars <= 255:
        raise InputError(f"chars is {chars}: an alphabet has between 2 and 255 characters")


@functools.lru_cache(maxsize=64)
def alphabets(depth: int, chars: int) -> tuple[str, ...]:
    """The depth+1 alphabets of MLT(depth, chars), each a string of `chars` symbols; no symbol occurs twice."""
    check_size(depth, chars)
    needed = (depth + 1) * chars
    if needed > len(SYMBOLS):
        raise InputError(
            f"MLT({depth}, {chars}) needs {needed} symbols for its {depth + 1} alphabets, but only {len(SYMBOLS)} are "
            f"known: use at most {len(SYMBOLS) // (depth + 1)} characters at this depth"
        )
    return tuple(SYMBOLS[i * chars : (i + 1) * chars] for i in range(depth + 1))
