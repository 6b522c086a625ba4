"""Row G1: another installation, with a root key of its own, that uses the same ZooKeeper and reaches the same ports."""

import pytest
from kazoo.exceptions import NoAuthError

from harness.components import AGENT, component, proof, signing_key_of
from harness.role_keys import RoleKeys
from harness.stolen_keys import AGENT_REFUSES, ENGINE_REFUSES, ROOT, Stolen, refusal

OTHER_ROOT = "/another"
ROLES = {"proxy": "proxy", "master": "master", "agent": "metadata-agent"}


@pytest.fixture(scope="module")
def victim(shared_target):
    return Stolen(shared_target)


@pytest.fixture(params=["standalone", "another"])
def keys(request, workspace):
    """The keys of the other installation: of the same name, or of another one."""
    return RoleKeys(workspace / f"keys-of-{request.param}", request.param)


def test_g1_the_keys_of_another_installation_open_nothing(target, victim, keys):
    engine = victim.names["finance"]
    nodes = [ROOT, *(f"{ROOT}/{it}" for it in ("engines", "agents", "drains", "lock", "lock/master", "bell"))]
    nodes += [f"{ROOT}/engines/{engine}", f"{ROOT}/engines/{engine}/live"]
    for user, role in ROLES.items():
        with victim.login(user, keys.file(role)) as client:
            attempts = [
                *(lambda it, path=path: it.get(path) for path in nodes),
                *(lambda it, path=path: it.get_children(path) for path in nodes),
                *(lambda it, path=path: it.set(path, b"{}") for path in nodes),
                *(lambda it, path=path: it.create(f"{path}/x", b"{}") for path in nodes),
                lambda it: it.create(f"{ROOT}/lock/master/x-lock-0000000000", b"", ephemeral=True),
                lambda it: it.create(f"{ROOT}/lock/alter", b""),
                lambda it: it.create(f"{ROOT}/drains/{engine}", b"{}"),
                lambda it: it.delete(f"{ROOT}/engines/{engine}/live"),
            ]
            for attempt in attempts:
                with pytest.raises(NoAuthError):
                    attempt(client)
            # Below a root of its own it does as it likes.
            client.ensure_path(f"{OTHER_ROOT}/{user}")
            client.delete(OTHER_ROOT, recursive=True)
    for role in ("proxy", "master"):
        for address, audience, expected in (
            (victim.address, AGENT, AGENT_REFUSES),
            (victim.registration("sales")["address"], victim.audience("sales"), ENGINE_REFUSES),
        ):
            key = signing_key_of(keys.file(role))
            assert refusal(address, lambda it, a=audience, r=role, k=key: proof(k, it, a, r, user="bob")) == expected
    # With the installation's own key the same proof is accepted.
    component(victim.address, AGENT, victim.proxy).close()
