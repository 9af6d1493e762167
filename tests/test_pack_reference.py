"""docs/reference/packs.md is what `scripts/pack_reference.py` writes."""

from __future__ import annotations

from scripts.pack_reference import FILES, PAGE, write_page


def test_the_page_lists_every_field_with_a_description() -> None:
    assert write_page() == PAGE.read_text(encoding="utf-8"), "run: python -m scripts.pack_reference"
    for models in FILES.values():
        for model in models:
            missing = [name for name, field in model.model_fields.items() if not field.description]
            assert not missing, (model.__name__, missing)
