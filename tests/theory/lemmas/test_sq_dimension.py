"""The phrasebooks that are built for the SQ dimension."""

from __future__ import annotations

from openbook.theory.lemmas.enumeration import all_codebooks
from openbook.theory.lemmas.sq_dimension import embedded_tables, feistel_tables


def test_constructed_phrasebooks_are_bijections() -> None:
    for tables in (feistel_tables(1), feistel_tables(3), embedded_tables(all_codebooks(1), 2)):
        for table in tables:
            assert sorted(table.tolist()) == list(range(tables.shape[1]))
