"""Prints the body of an HTTPS response, with the options of curl that the documentation uses."""

from __future__ import annotations

import argparse
import base64
import ssl
import sys
import urllib.request


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cacert", required=True)
    parser.add_argument("--user", required=True)
    parser.add_argument("url")
    given = parser.parse_args()
    authorization = "Basic " + base64.b64encode(given.user.encode()).decode()
    request = urllib.request.Request(given.url, headers={"Authorization": authorization})
    context = ssl.create_default_context(cafile=given.cacert)
    with urllib.request.urlopen(request, timeout=60, context=context) as response:
        sys.stdout.write(response.read().decode())


if __name__ == "__main__":
    main()
