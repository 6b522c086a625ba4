"""The components of `deploy/kubernetes`: each as its example in docs/kubernetes.md has it, rendered by the real kustomize.
Their files and variables go through the program."""

import functools
import os
import pathlib
import re

from harness.manifests import FOLDER, named, render
from harness.network_peers import opened_by, peers
from harness.pod_templates import checked, templates
from harness.processes import REPOSITORY


def test_proxies_with_a_directory_reach_it_and_have_its_secret(workspace, tmp_path):
    changed = with_component(workspace, "directory")
    pods = templates(changed)
    secret = [it["secret"] for it in pods["proxy"]["spec"]["volumes"] if it["name"] == "directory"]
    assert [(it["secretName"], it["defaultMode"]) for it in secret] == [("enginehouse-directory", 0o440)]
    settings = checked(pods["proxy"]["spec"]["containers"][0], changed, tmp_path)
    assert settings["access"]["authentication"] == ["file", "ldap"]
    found = {key: settings["ldap"][key] for key in ("url", "bind_dn", "user_base", "member_of")}
    assert found == {
        "url": "ldaps://directory.example:636",
        "bind_dn": "cn=reader,dc=example",
        "user_base": "ou=people,dc=example",
        "member_of": "memberOf",
    }
    check_only_proxies_differ(changed, 389, 636)


def test_proxies_with_an_issuer_reach_it_and_take_its_tokens(workspace, tmp_path):
    changed = with_component(workspace, "issuer")
    settings = checked(templates(changed)["proxy"]["spec"]["containers"][0], changed, tmp_path)
    assert settings["access"]["authentication"] == ["file", "jwt"]
    found = {key: settings["jwt"][key] for key in ("issuer", "jwks_url", "audience")}
    assert found == {"issuer": "https://issuer.example", "jwks_url": "https://issuer.example/jwks", "audience": ["enginehouse"]}
    check_only_proxies_differ(changed, 443)


def test_proxies_with_kerberos_have_its_keytab_and_a_folder_for_used_tickets(workspace):
    pods = templates(with_component(workspace, "kerberos"))
    spec = pods["proxy"]["spec"]
    volumes = {it["name"]: it for it in spec["volumes"]}
    secret = volumes["kerberos"]["secret"]
    assert (secret["secretName"], secret["defaultMode"]) == ("enginehouse-kerberos", 0o440)
    assert "emptyDir" in volumes["used-tickets"]
    [container] = spec["containers"]
    mounts = {it["name"]: it for it in container["volumeMounts"]}
    variables = {it["name"]: it.get("value") for it in container["env"]}
    folder = mounts["kerberos"]["mountPath"]
    assert (variables["KRB5_KTNAME"], variables["KRB5_CONFIG"]) == (f"{folder}/proxy.keytab", f"{folder}/krb5.conf")
    assert variables["KRB5RCACHEDIR"] == mounts["used-tickets"]["mountPath"] and not mounts["used-tickets"].get("readOnly")
    assert variables["ENGINEHOUSE_ACCESS_AUTHENTICATION"] == '["file", "kerberos"]'
    assert variables["ENGINEHOUSE_KERBEROS_REALMS"] == '["EXAMPLE.COM"]'
    for role in ("master", "metadata-agent"):
        assert pods[role]["spec"] == templates(objects_of_base())[role]["spec"], role


def test_agents_with_the_database_component_have_its_ca_and_password(workspace, tmp_path):
    files = {"database.url": "postgres://enginehouse@postgres/enginehouse", "database.crt": "CA", "database.password": "secret"}
    changed = with_component(workspace, "database", files)
    pods = templates(changed)
    spec = pods["metadata-agent"]["spec"]
    [secret] = [it["secret"] for it in spec["volumes"] if it["name"] == "database"]
    assert secret["secretName"].startswith("enginehouse-database") and secret["defaultMode"] == 0o440
    data = named(changed, "Secret", secret["secretName"])["data"]
    assert {it["key"] for it in secret["items"]} | {"url"} == set(data)
    for container in (spec["initContainers"][0], spec["containers"][0]):
        database = checked(container, changed, tmp_path)["database"]
        assert database["tls"] == "verify"
        assert [pathlib.Path(database[it]).name for it in ("ca_file", "password_file")] == ["ca.crt", "password"]
    for role in ("proxy", "master"):
        assert pods[role]["spec"] == templates(objects_of_base())[role]["spec"], role


def with_component(workspace, component, files=None):
    """The base with the example of the page for this component."""
    page = (REPOSITORY / "docs/kubernetes.md").read_text()
    blocks = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    [block] = [it for it in blocks if f"- ../components/{component}\n" in it]
    folder = workspace / f"with-{component}"
    folder.mkdir()
    for name, text in (files or {}).items():
        (folder / name).write_text(text)
    places = {it: os.path.relpath(FOLDER / it, folder) for it in ("base", "components")}
    block = block.replace("../components", places["components"])
    (folder / "kustomization.yaml").write_text(f"resources:\n- {places['base']}\n{block}")
    return render(folder)


def check_only_proxies_differ(changed, *ports):
    """The ports are open to proxies, except where another end refuses, and to nothing else."""
    for role in ("master", "metadata-agent"):
        assert templates(changed)[role]["spec"] == templates(objects_of_base())[role]["spec"], role
    known = peers()
    opened = opened_by(changed, known) - opened_by(objects_of_base(), known)
    assert {("proxy", "internet", port) for port in ports} <= opened
    assert all(source == "proxy" and port in ports for source, _, port in opened), opened
    assert not any(target == "metadata address" for _, target, _ in opened)


@functools.cache
def objects_of_base():
    return render(FOLDER / "base")
