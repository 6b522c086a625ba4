#!/usr/bin/env python3
"""Compares TCLIService.thrift with what PyHive and impyla ship.

The IDL is compiled to Python with Debian's thrift-compiler; then methods, structs, field ids, names, types and enums
are compared with the generated modules of the two packages, as installed for the Python that runs this. Text counts as
equal to binary: the wire is the same, and the two packages differ in it.

What a package has and we have not, or the other way round, must stand in one of the lists below: the packages follow
different versions of Hive. Exit status 1 on a difference; prints counts.
"""

import importlib
import inspect
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PACKAGES = [("PyHive", "TCLIService"), ("impyla", "impala_thrift_gen.TCLIService")]

# Theirs alone: calls that HiveServer2 no longer has (GetLog), or that Impala's users' servers never had.
THEIRS_ALONE = {
    "TGetLogReq", "TGetLogResp", "TUploadDataReq", "TUploadDataResp", "TDownloadDataReq", "TDownloadDataResp",
    "GetLog", "UploadData", "DownloadData",
}
# Ours and not in a package that follows an older Hive.
NEWER_THAN = {
    "PyHive": {
        "TSetClientInfoReq", "TSetClientInfoResp", "TGetQueryIdReq", "TGetQueryIdResp", "SetClientInfo", "GetQueryId",
        "TGetOperationStatusResp.numModifiedRows", "TProtocolVersion.HIVE_CLI_SERVICE_PROTOCOL_V11",
        "TTypeId.TIMESTAMPLOCALTZ_TYPE", "TOperationType.PROCEDURAL_SQL", "TGetInfoType.CLI_ODBC_KEYWORDS",
    },
    "impyla": set(),
}


class Facts:
    """What a generated package says: {struct: {id: (name, type, required)}}, {enum: {name: number}}, methods."""

    def __init__(self, package):
        types = importlib.import_module(package + ".ttypes")
        service = importlib.import_module(package + ".TCLIService")
        self.structs, self.enums = {}, {}
        for name, value in vars(types).items():
            if not inspect.isclass(value) or value.__module__ != types.__name__:
                continue
            if hasattr(value, "_VALUES_TO_NAMES"):
                self.enums[name] = {text: number for number, text in value._VALUES_TO_NAMES.items()}
            else:
                source = inspect.getsource(value)
                self.structs[name] = {
                    field[0]: (field[2], wire_type(field[1], field[3]), f"Required field {field[2]} is unset" in source)
                    for field in value.thrift_spec if field
                }
        self.methods = {}
        for name in (name for name in vars(service.Iface) if name[0].isupper()):
            arguments = getattr(service, name + "_args").thrift_spec
            result = getattr(service, name + "_result").thrift_spec
            self.methods[name] = (
                [(field[0], field[2], wire_type(field[1], field[3])) for field in arguments if field],
                [(field[0], wire_type(field[1], field[3])) for field in result if field],
            )


def wire_type(kind, argument):
    from thrift.Thrift import TType

    if kind == TType.STRUCT:
        return argument[0].__name__
    if kind in (TType.LIST, TType.SET):
        return f"list<{wire_type(argument[0], argument[1])}>"
    if kind == TType.MAP:
        return f"map<{wire_type(argument[0], argument[1])}, {wire_type(argument[2], argument[3])}>"
    return TType._VALUES_TO_NAMES[kind]


def compare(package, ours, theirs):
    """Yields a line per difference that no list allows."""
    newer = NEWER_THAN[package]

    def both(what, our_names, their_names):
        for name in sorted(set(our_names) - set(their_names) - newer):
            yield f"{what} {name}: not in {package}"
        for name in sorted(set(their_names) - set(our_names) - THEIRS_ALONE):
            yield f"{what} {name}: only in {package}"

    yield from both("struct", ours.structs, theirs.structs)
    yield from both("enum", ours.enums, theirs.enums)
    yield from both("method", ours.methods, theirs.methods)
    for struct in sorted(set(ours.structs) & set(theirs.structs)):
        mine, other = ours.structs[struct], theirs.structs[struct]
        for number in sorted(set(mine) | set(other)):
            if number not in other and f"{struct}.{mine[number][0]}" in newer:
                continue
            if mine.get(number) != other.get(number):
                yield f"{struct}, field {number}: ours {mine.get(number)}, in {package} {other.get(number)}"
    for enum in sorted(set(ours.enums) & set(theirs.enums)):
        mine, other = ours.enums[enum], theirs.enums[enum]
        for name in sorted(set(mine) | set(other)):
            if mine.get(name) != other.get(name) and f"{enum}.{name}" not in newer:
                yield f"{enum}.{name}: ours {mine.get(name)}, in {package} {other.get(name)}"
    for method in sorted(set(ours.methods) & set(theirs.methods)):
        if ours.methods[method] != theirs.methods[method]:
            yield f"method {method}: ours {ours.methods[method]}, in {package} {theirs.methods[method]}"


def main():
    with tempfile.TemporaryDirectory() as out:
        idl = pathlib.Path(out) / "TCLIService.thrift"
        # In a package of its own name, because PyHive's is called TCLIService too.
        text = (HERE / "TCLIService.thrift").read_text(encoding="utf-8")
        idl.write_text("namespace py ours_generated\n" + text, encoding="utf-8")
        subprocess.run(["thrift", "-nowarn", "--gen", "py", "-out", out, str(idl)], check=True)
        sys.path.insert(0, out)
        ours = Facts("ours_generated")
        failed = False
        for package, module in PACKAGES:
            theirs = Facts(module)
            differences = list(compare(package, ours, theirs))
            for line in differences:
                print(line)
            shared = set(ours.structs) & set(theirs.structs)
            print(
                f"{package}: {len(shared)} structs with {sum(len(ours.structs[name]) for name in shared)} fields, "
                f"{len(set(ours.enums) & set(theirs.enums))} enums with "
                f"{sum(len(ours.enums[name]) for name in set(ours.enums) & set(theirs.enums))} members, "
                f"{len(set(ours.methods) & set(theirs.methods))} methods, {len(differences)} differences"
            )
            failed |= bool(differences) or not shared
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
