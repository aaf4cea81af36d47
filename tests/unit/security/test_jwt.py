"""Checks of access tokens, and attacks on each of them."""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from joserfc import jwk, jws

from barnabas.errors import AuthenticationError, ConfigurationError
from barnabas.security.jwt import KEY_TYPES, JwtValidator, KeySet, UnknownKeyError, claimed_identity, parse_key_set
from barnabas.security.oauthbearer import AcceptedToken, OAuthBearerClient, OAuthBearerServer
from tests.support.searches import examples

NOW_S = 1_800_000_000
ISSUER, AUDIENCE = "https://issuer.example", "kafka"
EC_KEY = jwk.ECKey.generate_key("P-256", {"kid": "ec"})
OTHER_EC_KEY = jwk.ECKey.generate_key("P-256", {"kid": "ec"})
OKP_KEY = jwk.OKPKey.generate_key("Ed25519", {"kid": "okp"})
CLAIMS = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": NOW_S + 60, "iat": NOW_S, "nbf": NOW_S}


def key_set(*keys: Any) -> bytes:
    return json.dumps({"keys": [key if isinstance(key, dict) else key.as_dict(private=False) for key in keys]}).encode()


@functools.cache
def rsa_key() -> Any:
    """Return an RSA key, which takes long to create."""
    return jwk.RSAKey.generate_key(2048, {"kid": "rsa"})


@functools.cache
def all_keys() -> KeySet:
    return parse_key_set(key_set(EC_KEY, OKP_KEY, rsa_key()))


def validator(keys: KeySet | None = None, **changed: Any) -> JwtValidator:
    given = all_keys() if keys is None else keys
    return JwtValidator(given, **{"issuer": ISSUER, "audience": [AUDIENCE, "other"], **changed})


def encoded(value: Any) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def token(claims: Any = CLAIMS, key: Any = EC_KEY, algorithm: str = "ES256", **header: Any) -> str:
    """Return a token with a right signature, also for unusual headers and claims."""
    given = {"alg": algorithm, "kid": key.kid, **header}
    signed = f"{encoded(given)}.{encoded(claims)}"
    signature = jws.JWSRegistry.algorithms[algorithm].sign(signed.encode(), key)
    return f"{signed}.{encoded(signature)}"


def accepted(text: str, by: JwtValidator | None = None) -> AcceptedToken:
    return (by or validator()).validate(text, NOW_S * 1000)


def refusal(text: str, by: JwtValidator | None = None) -> str:
    with pytest.raises(AuthenticationError) as caught:
        accepted(text, by)
    return str(caught.value)


def with_claims(**changed: Any) -> str:
    return token({name: value for name, value in {**CLAIMS, **changed}.items() if value is not ...})


@pytest.mark.parametrize("algorithm", ["ES256", "RS256", "PS512", "Ed25519", "EdDSA"])
def test_valid_token_names_principal_and_expiry(algorithm: str) -> None:
    key = {"EC": EC_KEY, "OKP": OKP_KEY, "RSA": rsa_key()}[KEY_TYPES[algorithm]]
    assert accepted(token(key=key, algorithm=algorithm)) == AcceptedToken("alice", (NOW_S + 60) * 1000)


def test_token_of_a_client_completes_both_ends() -> None:
    client = OAuthBearerClient(token())
    server = OAuthBearerServer(lambda text: validator().validate(text, NOW_S * 1000))
    client.respond(server.respond(client.first()))
    assert (server.principal, server.expires_ms) == ("alice", (NOW_S + 60) * 1000)


def test_principal_may_come_from_another_claim() -> None:
    assert accepted(with_claims(client_id="svc"), validator(principal_claim="client_id")).principal == "svc"
    assert "client_id" in refusal(token(), validator(principal_claim="client_id"))


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "HS256", "ES256K", ["ES256"], None, ""])
def test_other_algorithms_are_refused_before_any_check_of_a_signature(algorithm: Any) -> None:
    head = encoded({"alg": algorithm, "kid": "ec"})
    for signature in ("AAAA", ""):
        refusal(f"{head}.{encoded(CLAIMS)}.{signature}")


@pytest.mark.parametrize("kid", ["ec", "rsa"])
def test_hs256_with_the_public_key_as_its_secret_is_refused(kid: str) -> None:
    key = {"ec": EC_KEY, "rsa": rsa_key()}[kid]
    signed = f"{encoded({'alg': 'HS256', 'kid': kid})}.{encoded(CLAIMS)}"
    for secret in (
        key.as_pem(private=False),
        key.as_der(private=False),
        json.dumps(key.as_dict(private=False)).encode(),
    ):
        forged = hmac.digest(secret, signed.encode(), hashlib.sha256)
        assert "not permitted" in refusal(f"{signed}.{encoded(forged)}")
    with pytest.raises(ConfigurationError, match="algorithms"):
        validator(algorithms=["HS256"])


def test_algorithm_must_fit_the_key() -> None:
    assert "does not fit" in refusal(token(key=EC_KEY, kid="rsa"))
    assert "does not fit" in refusal(token(key=rsa_key(), algorithm="RS256", kid="ec"))
    only_ps256 = parse_key_set(key_set({**rsa_key().as_dict(private=False), "alg": "PS256"}))
    assert "does not fit" in refusal(token(key=rsa_key(), algorithm="RS256"), validator(only_ps256))
    assert accepted(token(key=rsa_key(), algorithm="PS256"), validator(only_ps256))
    assert "not permitted" in refusal(token(), validator(algorithms=["RS256"]))
    assert "signature" in refusal(f"{encoded({'alg': 'ES384', 'kid': 'ec'})}.{encoded(CLAIMS)}.{'A' * 128}")


def test_wrong_key_is_refused() -> None:
    assert "signature" in refusal(token(key=OTHER_EC_KEY))


def test_keys_and_urls_in_the_header_have_no_effect() -> None:
    embedded = OTHER_EC_KEY.as_dict(private=False)
    assert "signature" in refusal(token(key=OTHER_EC_KEY, jwk=embedded, jku="https://attacker.example/keys"))
    assert accepted(token(jwk=embedded, jku="https://attacker.example/keys", custom=1))
    assert "header" in refusal(token(crit=["custom"], custom=1))
    assert "header" in refusal(token(b64=False))


def test_changed_claims_are_refused() -> None:
    head, _, signature = token().split(".")
    assert "signature" in refusal(f"{head}.{encoded({**CLAIMS, 'sub': 'admin'})}.{signature}")


def test_unknown_key_asks_for_new_keys() -> None:
    old = validator(parse_key_set(key_set(OKP_KEY, rsa_key())))
    with pytest.raises(UnknownKeyError):
        accepted(token(), old)
    assert accepted(token(), validator(all_keys())).principal == "alice"


def test_token_without_key_id_fits_a_single_key_only() -> None:
    single = parse_key_set(
        key_set({name: value for name, value in EC_KEY.as_dict(private=False).items() if name != "kid"})
    )
    assert accepted(token(kid=""), validator(single)).principal == "alice"
    for text, by in ((token(kid=""), validator()), (token(), validator(single))):
        with pytest.raises(UnknownKeyError):
            accepted(text, by)


@pytest.mark.parametrize("issuer", ["https://issuer.example/", "https://attacker.example", "", None, 1, [ISSUER], ...])
def test_wrong_issuer_is_refused(issuer: Any) -> None:
    assert "issuer" in refusal(with_claims(iss=issuer))


@pytest.mark.parametrize("audience", ["kafka2", "", None, 1, [], [["kafka"]], {"kafka": 1}, ...])
def test_wrong_audience_is_refused(audience: Any) -> None:
    assert "audience" in refusal(with_claims(aud=audience))


def test_one_of_several_audiences_is_enough() -> None:
    assert accepted(with_claims(aud=["web", "other"]))


@pytest.mark.parametrize(
    ("times", "reason"),
    [
        ({"exp": NOW_S - 30}, "expired"),
        ({"exp": ...}, "no expiry"),
        ({"exp": None}, "no expiry"),
        ({"exp": "9999999999"}, "invalid time in exp"),
        ({"exp": True}, "invalid time in exp"),
        ({"exp": 1e300}, "invalid time in exp"),
        ({"exp": 10**400}, "invalid time in exp"),
        ({"exp": -1}, "invalid time in exp"),
        ({"exp": float("nan")}, "JSON"),
        ({"exp": float("inf")}, "JSON"),
        ({"nbf": NOW_S + 31}, "not valid yet: nbf"),
        ({"iat": NOW_S + 31}, "not valid yet: iat"),
        ({"nbf": []}, "invalid time in nbf"),
    ],
)
def test_token_outside_its_time_is_refused(times: Mapping[str, Any], reason: str) -> None:
    assert reason in refusal(with_claims(**times))


def test_clocks_may_differ_by_the_skew() -> None:
    late, early = with_claims(exp=NOW_S - 29), with_claims(nbf=NOW_S + 30, iat=NOW_S + 30)
    assert accepted(late).expires_ms == (NOW_S - 29) * 1000
    assert accepted(early)
    exact = validator(clock_skew_s=0)
    assert accepted(with_claims(exp=NOW_S + 0.5), exact).expires_ms == NOW_S * 1000 + 500
    for text in (late, early, with_claims(exp=NOW_S)):
        refusal(text, exact)


@pytest.mark.parametrize("name", ["", "a\nb", 1, None, ["alice"], ...])
def test_token_without_a_valid_name_is_refused(name: Any) -> None:
    assert "claim sub" in refusal(with_claims(sub=name))


def test_token_with_a_long_name_is_refused() -> None:
    assert "claim sub" in refusal(with_claims(sub="a" * 2000))


MALFORMED = [
    "",
    "a",
    "a.b",
    "..",
    "a.b.c.d.e",
    "é.b.c",
    "a.b.c\n",
    "A.AAAA.AAAA",
    f"{encoded(b'[]')}.AAAA.AAAA",
    f"{encoded(b'[' * 5000)}.AAAA.AAAA",
    f"{encoded(b'{' + b'  ' * 7000)}.AAAA.AAAA",
    encoded(b'{"alg":"none","alg":"ES256","kid":"ec"}') + ".AAAA.AAAA",
    "a" * 20_000,
    token() + "A" * 16_384,
]


@pytest.mark.parametrize("text", MALFORMED, ids=range(len(MALFORMED)))
def test_malformed_or_oversized_token_is_refused(text: str) -> None:
    refusal(text)


@pytest.mark.parametrize("claims", [b"[]", b"1", b"\xff", b"{", b"[" * 3000, b'{"exp":1,"exp":2}'])
def test_signed_claims_that_are_no_object_are_refused(claims: bytes) -> None:
    assert "not a JSON object" in refusal(token(claims))


VALID = token()


@settings(max_examples=examples(100))
@given(st.integers(0, 400), st.integers(0, 3), st.text("A._-=\n\0é", max_size=4))
def test_mutated_tokens_are_refused_or_unchanged(position: int, cut: int, added: str) -> None:
    mutated = VALID[:position] + added + VALID[position + cut :]
    try:
        found = accepted(mutated)
    except AuthenticationError as error:
        assert VALID[:10] not in str(error)  # noqa: PT017
    else:
        assert found.principal == "alice"


@pytest.mark.parametrize(
    "changed",
    [
        {"issuer": ""},
        {"audience": []},
        {"audience": ""},
        {"audience": ["kafka", ""]},
        {"principal_claim": ""},
        {"clock_skew_s": -1},
        {"clock_skew_s": 1e9},
        {"clock_skew_s": float("nan")},
        {"algorithms": []},
        {"algorithms": "ES256"},
        {"algorithms": ["ES256", "none"]},
    ],
)
def test_validator_without_a_check_cannot_be_created(changed: Mapping[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        validator(**changed)


def test_validator_without_keys_cannot_be_created() -> None:
    with pytest.raises(ConfigurationError, match="public keys"):
        validator(KeySet([]))


def test_keys_for_other_purposes_are_left_out() -> None:
    public = EC_KEY.as_dict(private=False)
    keys = parse_key_set(
        key_set(
            EC_KEY,
            {**public, "kid": "enc", "use": "enc"},
            {**public, "kid": "ops", "key_ops": ["sign"]},
            {"kty": "AKP", "kid": "new"},
            {**public, "kid": "alg", "alg": "ECDH-ES"},
        )
    )
    assert len(keys) == 1


UNUSABLE_KEY_SETS = [
    (b"", "not a JSON Web Key Set"),
    (b"[]", "not a JSON Web Key Set"),
    (b"{}", "not a JSON Web Key Set"),
    (b"[" * 100_000, "not a JSON Web Key Set"),
    (b'{"keys": 1}', "no list"),
    (b'{"keys": [1]}', "no list"),
    (b'{"keys": []}', "no public key"),
    (b" " * 1_048_577, "bytes"),
    (key_set(*[{}] * 101), "more than 100 keys"),
    (key_set({"kty": "oct", "k": "c2VjcmV0", "kid": "a"}), "symmetric"),
    (key_set(EC_KEY.as_dict(private=True)), "private"),
    (key_set(EC_KEY, OTHER_EC_KEY), "same key id"),
    (key_set({"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}), "damaged"),
    (key_set({"kty": "RSA", "n": 1, "e": []}), "damaged"),
    (key_set({"kty": ["EC"]}), "damaged"),
    (key_set({"kty": "RSA", "n": encoded(b"\x81" * 128), "e": "AQAB"}), "1024 bits"),
    (key_set({**EC_KEY.as_dict(private=False), "kid": 1}), "damaged"),
]


@pytest.mark.parametrize(("data", "error"), UNUSABLE_KEY_SETS, ids=range(len(UNUSABLE_KEY_SETS)))
def test_unusable_key_set_is_refused(data: bytes, error: str) -> None:
    with pytest.raises(ConfigurationError, match=error):
        parse_key_set(data)


def test_supported_algorithms_are_asymmetric() -> None:
    assert set(KEY_TYPES.values()) == {"RSA", "EC", "OKP"}


def test_claims_of_an_unverified_token_are_read() -> None:
    assert claimed_identity(token(), "sub") == accepted(token())
    assert claimed_identity(with_claims(client="reports"), "client").principal == "reports"


@pytest.mark.parametrize(
    "text",
    ["", "abc", "a.b.c", with_claims(sub=7), with_claims(sub=""), with_claims(exp=None), with_claims(exp="x")],
    ids=["empty", "one-part", "no-json", "number", "no-subject", "no-expiry", "text-as-expiry"],
)
def test_token_without_readable_claims_is_refused(text: str) -> None:
    with pytest.raises(AuthenticationError):
        claimed_identity(text, "sub")
