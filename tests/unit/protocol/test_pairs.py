"""A request's response, found without the list of APIs."""

from __future__ import annotations

import pytest

from barnabas.protocol.apis import APIS, Api
from barnabas.protocol.pairs import api_name, response_of


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_response_and_name_are_those_of_the_list(api: Api) -> None:
    assert response_of(api.request) is api.response
    assert api_name(api.request) == api.name
