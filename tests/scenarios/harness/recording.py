"""The recorded state of an installation: how it is read and what its files are. `harness.recorded` loads it.

| file | what |
| --- | --- |
| `commit` | the commit that the program was built from |
| `installation.json` | version, engines, settings, what SHOW CREATE printed and what queries returned |
| `schema.sql` | the tables and indexes, derived from PostgreSQL's catalog, in the portable types of the schema |
| `rows.json` | the rows of each table, as objects; numbers and texts only |
| `znodes.json` | each node from above the root down: path, text, access list, whether it was ephemeral |
| `files.json` | the state directory of the process orchestrator, the tenants' catalogs and the sample data: path, mode, text |
| `environments.json` | our variables in the environment of each engine's process |
| `objects.json` | namespaces, config maps, network policies, accounts, rights and pods, as the API server returned them |

What differs from one installation to the next stands as a name in double braces: `{{ROOT}}`, `{{STATE_DIR}}` and so on.
Logs and locks are left out.
"""

import contextlib
import json
import pathlib
import platform
import stat

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from harness.processes import BINARY
from harness.zookeeper import TIMEOUT_S, derived

NODE = platform.node()
LEFT_OUT = {"lock", "log", "log.1", "exit.json"}
# Below these paths of the API server, in the order in which they can be made again.
KINDS = ["networkpolicies", "serviceaccounts", "roles", "rolebindings", "configmaps", "pods"]
NUMBERS = {"bigint": "BIGINT", "smallint": "SMALLINT"}


def write(folder, cluster, about):
    files = {
        "installation.json": about | {"secret": cluster.secret, "cluster": cluster.name},
        "rows.json": rows(cluster.database),
        "znodes.json": znodes(cluster),
    }
    if about["kind"] == "pods":
        files["objects.json"] = objects(cluster)
    else:
        places = {"STATE_DIR": cluster.state_dir, "DATA_DIR": cluster.folder / "data", "SAMPLES": cluster.samples}
        files["files.json"] = [it for name, place in places.items() for it in texts_below(place, name)]
        files["environments.json"] = {name: environment(engine.pid) for name, engine in sorted(cluster.engines.all().items())}
    for name, content in files.items():
        text = json.dumps(content, indent=1, ensure_ascii=False, sort_keys=True)
        (folder / name).write_text(with_placeholders(text, cluster) + "\n")
    (folder / "schema.sql").write_text(schema(cluster.database))


def placeholders(cluster):
    """The names, and what they stand for in an installation."""
    found = {
        "STATE_DIR": cluster.state_dir,
        "DATA_DIR": cluster.folder / "data",
        "SAMPLES": cluster.samples,
        "FOLDER": cluster.folder,
        "PROGRAM": BINARY,
        "ROOT": cluster.root,
        "ROOT_NAME": cluster.root.lstrip("/"),
        "DISCOVERY": cluster.discovery,
        "ZOOKEEPER": cluster.connect,
        "NODE": NODE,
    }
    if hasattr(cluster, "pods"):
        found["KUBECONFIG"] = cluster.pods.master
    return {f"{{{{{name}}}}}": str(value) for name, value in found.items()}


def with_placeholders(text, cluster):
    """A text of JSON; longer values are replaced first, because one may begin with another."""
    found = placeholders(cluster)
    # Only whole strings are the node; in the text of a file that is JSON itself, too.
    node = found.pop("{{NODE}}")
    found |= {'"{{NODE}}"': f'"{node}"', r"\"{{NODE}}\"": rf"\"{node}\""}
    for name, value in sorted(found.items(), key=lambda it: -len(it[1])):
        text = text.replace(value, name)
    return text


def tables(database):
    query = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY table_name"
    return [it for (it,) in database.rows(query)]


def columns(database, table):
    """(name, type as the schema writes it, whether it may be NULL) of each column, in order."""
    described = database.rows(
        "SELECT column_name, data_type, character_maximum_length, is_nullable FROM information_schema.columns "
        f"WHERE table_schema = 'public' AND table_name = '{table}' ORDER BY ordinal_position"
    )
    found = []
    for name, kind, length, nullable in described:
        kinds = NUMBERS | {"text": "TEXT", "character varying": f"VARCHAR({length})"}
        found.append((name, kinds[kind], nullable == "YES"))
    return found


def schema(database):
    statements = []
    for table in tables(database):
        key = [
            it
            for (it,) in database.rows(
                "SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey) "
                f"WHERE i.indisprimary AND i.indrelid = '{table}'::regclass ORDER BY array_position(i.indkey, a.attnum)"
            )
        ]
        described = [f"{name} {kind}{'' if nullable else ' NOT NULL'}" for name, kind, nullable in columns(database, table)]
        described.append(f"PRIMARY KEY ({', '.join(key)})")
        statements.append(f"CREATE TABLE {table} ({', '.join(described)})")
    for (definition,) in database.rows(
        "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' AND indexname NOT LIKE '%_pkey' ORDER BY indexname"
    ):
        statements.append(definition.replace(" USING btree", "").replace("public.", ""))
    return "".join(f"{it};\n" for it in statements)


def rows(database):
    found = {}
    for table in tables(database):
        described = columns(database, table)
        names = ", ".join(name for name, _, _ in described)
        found[table] = [
            {
                name: int(value) if value is not None and kind in NUMBERS.values() else value
                for (name, kind, _), value in zip(described, row, strict=True)
            }
            for row in database.rows(f"SELECT {names} FROM {table} ORDER BY 1, 2")
        ]
    return found


@contextlib.contextmanager
def connected(hosts, secret):
    """A client with the rights of every role."""
    client = KazooClient(
        hosts=hosts,
        timeout=TIMEOUT_S,
        auth_data=[("digest", f"{role}:{derived(secret, f'zookeeper-{role}')}") for role in ("master", "proxy", "agent")],
    )
    client.start(timeout=TIMEOUT_S)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def znodes(cluster):
    with connected(cluster.connect, cluster.secret) as client:
        above = node(client, cluster.root.rsplit("/", 1)[0])
        return [above, *tree(client, cluster.root), *tree(client, f"/{cluster.discovery}")]


def tree(client, path):
    try:
        found = [node(client, path)]
        for child in sorted(client.get_children(path)):
            found += tree(client, f"{path}/{child}")
    except NoNodeError:
        return []
    return found


def node(client, path):
    data, state = client.get(path)
    rights, _ = client.get_acls(path)
    return {
        "path": path,
        "text": data.decode(),
        "ephemeral": state.ephemeralOwner != 0,
        "access": [{"scheme": it.id.scheme, "id": it.id.id, "rights": it.perms} for it in rights],
    }


def texts_below(place, name):
    """The files below a folder, scratch space and logs left out; an empty folder has no text."""
    found = []
    place = pathlib.Path(place)
    for path in sorted(place.rglob("*")):
        below = path.relative_to(place)
        if path.name in LEFT_OUT or "scratch" in below.parts:
            continue
        mode = stat.S_IMODE(path.stat().st_mode)
        text = None if path.is_dir() else path.read_text()
        found.append({"path": f"{{{{{name}}}}}/{below}", "mode": mode, "text": text})
    return found


def environment(pid):
    entries = pathlib.Path(f"/proc/{pid}/environ").read_text().split("\0")
    return dict(it.split("=", 1) for it in entries if it.startswith("ENGINEHOUSE_"))


def objects(cluster):
    """Everything in the namespaces of engines, and the epoch's config map at home."""
    admin = cluster.pods.admin
    namespaces = sorted({it["metadata"]["namespace"] for it in cluster.engines.own()})
    found = [{"kind": "namespaces", "object": admin.get("namespaces", it)} for it in namespaces]
    for namespace in namespaces:
        for kind in KINDS:
            found += [{"kind": kind, "object": it} for it in admin.items(kind, namespace)]
    found += [
        {"kind": "configmaps", "object": it}
        for it in admin.items("configmaps", "enginehouse")
        if it["metadata"]["name"] != "kube-root-ca.crt"
    ]
    return found
