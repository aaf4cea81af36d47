"""The text of `--partition-by` and `--sort-by`: columns and transforms, and a clear error for anything else."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.errors import ConfigurationError
from barnabas.spark.layout_syntax import parse_partition, parse_sort
from barnabas.spark.partition_transforms import Transform


def test_transforms_and_columns_are_parsed_in_any_case_and_by_all_their_names() -> None:
    terms = parse_partition(' HOURS(event_time),bucket( 16 ,user.id), "a, b" ,truncate(3,`x y`), date(at)')
    assert [(term.transform, term.path) for term in terms] == [
        (Transform("hour"), ("event_time",)),
        (Transform("bucket", 16), ("user", "id")),
        (Transform("identity"), ("a, b",)),
        (Transform("truncate", 3), ("x y",)),
        (Transform("day"), ("at",)),
    ]


def test_a_list_is_as_good_as_a_text_and_nothing_means_no_partitions() -> None:
    assert parse_partition(["day(at)", "country"]) == parse_partition("day(at), country")
    assert parse_partition("") == parse_partition("  ") == parse_partition([]) == ()


def test_nulls_are_where_spark_has_them_unless_the_order_says_otherwise() -> None:
    terms = parse_sort("a, b desc, c DESC NULLS FIRST, hour(d) asc nulls last, year, hour desc")
    order = [(str(term), term.is_descending, term.nulls_first) for term in terms]
    assert order == [
        ("a", False, True),
        ("b", True, False),
        ("c", True, True),
        ("hour(d)", False, False),
        ("year", False, True),
        ("hour", True, False),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("zorder(a, b)", "unknown transform 'zorder'"),
        ("bucket(user_id)", r"the number of buckets: bucket\(16, C\) expected, not 'user_id'"),
        ("bucket(user_id, 16)", r"the number of buckets: bucket\(16, C\) expected"),
        ("bucket(0, a)", "needs a number from 1 to 2147483647"),
        ("truncate(99999999999, a)", "needs a number from 1 to 2147483647"),
        ("bucket(-1, a)", r"expected, not '-'"),
        ("hour(event_time", r"'\)' expected, not the end"),
        ("day(a b)", r"'\)' expected, not 'b'"),
        ("a,", "a column expected, not the end"),
        (", a", "a column expected, not ','"),
        ("a b", "a comma expected, not 'b'"),
        ("a desc", "a comma expected, not 'desc'"),
        ("a.", "a column expected, not the end"),
        ("day(day(a))", r"'\)' expected, not '\('"),
        ("day(a), day(a)", r"day\(a\) occurs twice"),
        ("a;b", "a comma expected, not ';'"),
        ('"a', "a column expected, not '\"'"),
        (",".join(f"c{number}" for number in range(101)), "101 columns, more than 100"),
        ("a" * 10_001, "10001 characters"),
    ],
)
def test_wrong_input_is_refused_with_what_would_be_right(text: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"^partition_by \(--partition-by\): .*{words}"):
        parse_partition(text)


@pytest.mark.parametrize("text", ["a nulls", "a nulls up", "a desc desc"])
def test_wrong_orders_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^sort_by \(--sort-by\): .* expected"):
        parse_sort(text)


@given(st.text(alphabet='ab1(),.`" \n-bucket', max_size=30))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    with suppress(ConfigurationError):
        terms = parse_partition(text)
        quoted = [term.transform.of(".".join(f"`{name}`" for name in term.path)) for term in terms]
        assert parse_partition(quoted) == terms
