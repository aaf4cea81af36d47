"""Principals, the text of distinguished names as in Java, and Kafka's mapping rules."""

from __future__ import annotations

import pytest

from barnabas.errors import AuthenticationError, ConfigurationError
from barnabas.security.principal import (
    ANONYMOUS,
    DistinguishedName,
    Principal,
    PrincipalMapping,
    distinguished_name,
    is_valid_name,
)


def subject(*attributes: tuple[str, str]) -> DistinguishedName:
    return tuple((attribute,) for attribute in attributes)


def test_principal_has_kafkas_text() -> None:
    assert str(ANONYMOUS) == "User:ANONYMOUS"
    assert Principal.parse("User:CN=a:b") == Principal("User", "CN=a:b")
    for invalid in ("alice", "User:", ":alice", ""):
        with pytest.raises(ConfigurationError, match="User:NAME"):
            Principal.parse(invalid)


def test_names_are_printable_and_bounded() -> None:
    assert is_valid_name("a" * 1024)
    for invalid in ("", "a" * 1025, "é" * 513, "a\nb", "a\0b", "a\u202eb", "\ud800"):
        assert not is_valid_name(invalid)


@pytest.mark.parametrize(
    ("attributes", "name"),  # the names that Java 21 returns for certificates with these subjects
    [
        ((("countryName", "US"), ("stateOrProvinceName", "MD"), ("commonName", "Duke")), "CN=Duke,ST=MD,C=US"),
        ((("commonName", 'q"u\\o<t>e;#x,a=b+c'),), 'CN=q\\"u\\\\o\\<t\\>e\\;\\#x\\,a\\=b\\+c'),
        ((("commonName", " lead and trail "),), "CN=\\ lead and trail\\ "),
        (
            (("domainComponent", "com"), ("streetAddress", "1 Main"), ("emailAddress", "a@b.c"), ("userId", "Zoë")),
            "UID=Zoë,1.2.840.113549.1.9.1=#16056140622e63,STREET=1 Main,DC=com",
        ),
        ((("serialNumber", "123"), ("title", "Dr")), "2.5.4.12=#0c024472,2.5.4.5=#1303313233"),
        ((("1.2.3.4.5", "x" * 200),), "1.2.3.4.5=#0c81c8" + "78" * 200),
    ],
)
def test_distinguished_name_has_javas_text(attributes: tuple[tuple[str, str], ...], name: str) -> None:
    assert distinguished_name(subject(*attributes)) == name


def test_examples_of_kafkas_documentation() -> None:
    mapping = PrincipalMapping.parse(
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,\n"
        "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,\n"
        "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,\n"
        "DEFAULT"
    )
    service = "CN=serviceuser,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown"
    assert mapping.name_of(service) == "serviceuser"
    assert mapping.name_of("CN=adminUser,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=Unknown") == "adminuser@admin"
    assert mapping.name_of("cN=Duke,OU=JavaSoft") == "duke"
    assert mapping.name_of("OU=JavaSoft,C=US") == "OU=JavaSoft,C=US"


@pytest.mark.parametrize(
    ("rules", "name", "mapped"),
    [
        ("RULE:^cn=(.*?),ou=(.*?)$/$1@$2/U", "cn=duke,ou=sme", "DUKE@SME"),
        (r"RULE:^CN=((\\, *|\w)+)(,.*|$)/$1/", r"CN=Tkac\, Adam,OU=ITZ", r"Tkac\, Adam"),
        (r"RULE:CN=(.*)\/x/a\/$1\$\\/", "CN=b/x", r"a/b$" + "\\"),
        ("RULE:(a)(b)/$2$1$0$3$12/", "ab", "baab$3a2"),
        ("RULE:(?<first>a)(?<second>b)\\k<first>/${second}/", "aba", "b"),
        ("RULE:\\Qa.b\\E(.*)/$1/", "a.bc", "c"),
        ("RULE:a|b/x/", "b", "x"),
        ("RULE:[^,]*/x/", "abc", "xx"),  # as Java's replaceAll, which also replaces the empty match at the end
        ("RULE:|(?:a|b)*/-/U", "aa", "-A-A-"),
        ("RULE:(.*?)/x$12/", "a.b", "x2ax2.x2bx2"),
        ("RULE:(a)|(b)/<$1>/", "b", "<>"),
        ("RULE:(?i)cn=(\\w+)\\z/$1/", "CN=Duke", "Duke"),
        ("RULE:[]a]+/x/", "]a", "x"),
        ("RULE:,RULE:,/n/L , DEFAULT", ",RULE:,", "n"),
        ("DEFAULT, RULE:a/b/", "a", "a"),
        ("  , ,RULE:  a /  b /U ,, ", "  a ", "  B "),
    ],
)
def test_rule_maps_as_in_kafka(rules: str, name: str, mapped: str) -> None:
    assert PrincipalMapping.parse(rules).name_of(name) == mapped


@pytest.mark.parametrize(
    "rules",
    [
        "",
        " , ",
        "default",
        "DEFAULT/L",
        "DEFAULTS",
        "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
        "rule:^CN=(.*?)$/$1/",
        "RULE:^CN=(.*?)$/$1/L/U",
        "RULE:^CN=(.*?)$/$1/LU",
        "RULE:^CN=(.*?)$/L",
        "RULE:(/x/",
        "RULE:a{2,1}/x/",
        "RULE:[a-z&&[^b]]/x/",
        "RULE:\\p{Alpha}/x/",
        "RULE:(?u)a/x/",
        "RULE:a/$1/",
        "RULE:(a)/$/",
        "RULE:(a)/${b}/",
        "RULE:a(?i)/x/",
        "RULE:" + "a" * 2000 + "/x/",
        "RULE:a/b/," * 4000,
    ],
)
def test_invalid_rules_are_refused_at_start(rules: str) -> None:
    with pytest.raises(ConfigurationError, match=r"ssl\.principal\.mapping\.rules"):
        PrincipalMapping.parse(rules)


def test_certificate_without_matching_rule_is_refused() -> None:
    mapping = PrincipalMapping.parse("RULE:^CN=(\\w*)$/$1/")
    assert mapping.principal_of(subject(("commonName", "duke"))) == Principal("User", "duke")
    for refused in (subject(("organizationName", "duke")), subject(("commonName", "")), ()):
        with pytest.raises(AuthenticationError, match=r"ssl\.principal\.mapping\.rules"):
            mapping.principal_of(refused)


def test_line_break_in_a_certificate_is_refused() -> None:
    with pytest.raises(AuthenticationError):
        PrincipalMapping.parse("DEFAULT").principal_of(subject(("commonName", "a\nb")))
