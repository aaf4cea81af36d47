"""Old names of fields and new ones: of several schemas together, as a table remembers them, and in its columns."""

from __future__ import annotations

from barnabas.formats.field_aliases import NO_ALIASES, Aliases, kept_beside, renamed_within

PLACE = Aliases({"x": "longitude"}, {"tags": Aliases({"k": "key"})})


def test_what_several_schemas_tell_comes_together() -> None:
    one = Aliases({"page": "url"}, {"place": Aliases({"x": "longitude"})})
    other = Aliases({"url": "link"}, {"place": Aliases(within={"tags": Aliases({"k": "key"})})})
    assert Aliases.together([one, other]) == Aliases({"page": "url", "url": "link"}, {"place": PLACE})
    assert Aliases.together([]) == NO_ALIASES
    assert not NO_ALIASES


def test_aliases_within_move_with_the_field_that_they_are_in() -> None:
    told = Aliases(within={"place": Aliases({"x": "longitude"}), "spot": Aliases({"y": "latitude"})})
    assert told.under({"place": "spot"}) == {"spot": Aliases({"x": "longitude", "y": "latitude"})}


def test_they_come_back_from_json_also_those_of_tables_that_had_none_within() -> None:
    aliases = Aliases({"page": "url"}, {"place": PLACE})
    assert Aliases.parse(aliases.dump()) == aliases
    assert Aliases.parse('{"page": "url"}') == Aliases({"page": "url"})
    assert Aliases.parse("{}") == NO_ALIASES


def test_no_two_fields_have_the_same_name_in_the_table() -> None:
    aliases = Aliases({"a": "c", "b": "c"})
    assert aliases.targets(["a", "b"]) == {"a": "c"}
    assert aliases.targets(["a", "c"]) == {"c": "c"}
    assert aliases.targets(["c", "d"]) == {"c": "c", "d": "d"}


def test_columns_tell_what_is_renamed_within_them() -> None:
    before = {"x": "float", "tags": ["string", {"k": "string"}], "kept": "long"}
    after = {"longitude": "float", "tags": ["string", {"key": "string"}], "kept": "long", "new": "long"}
    assert dict(renamed_within(before, after, PLACE)) == {("x",): "longitude", ("tags", "value", "k"): "key"}
    assert dict(renamed_within("long", "double", PLACE)) == {}


def test_a_name_that_is_there_beside_the_new_one_is_told() -> None:
    told = Aliases({"page": "url", "gone": "url"}, {"places": PLACE, "url": PLACE})
    fields = {"page": "string", "url": "string", "places": [{"x": "float", "longitude": "float"}]}
    assert kept_beside(fields, told) == {"page": "url", "places.x": "places.longitude"}
