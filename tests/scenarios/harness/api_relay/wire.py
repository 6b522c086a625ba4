"""HTTP/1.1 over asyncio's streams, as much of it as API servers and their clients speak: heads, bodies with a length or in
chunks. What is no HTTP, or ends too early, is an `OSError`, an `EOFError` or a `ValueError`."""

import http.client
import io
import json

CHUNK = 64 * 1024
# The API server itself takes 3 MB, and etcd half of that; a list of 10,000 pods is larger.
MAX_BODY = 256 << 20
# What belongs to one connection only.
HOP_BY_HOP = ("Connection", "Keep-Alive", "Transfer-Encoding", "Content-Length", "Expect", "TE", "Trailer")
LAST_CHUNK = b"0\r\n\r\n"


async def read_head(reader, ahead=b""):
    """(first line, headers), of which the beginning may have been read before; `None` if the other side has ended."""
    block = ahead and ahead + await reader.readline()
    while not block.endswith(b"\r\n\r\n"):
        line = await reader.readline()
        if not line:
            if block:
                raise EOFError("a head ended in its middle")
            return None
        block += line
    first, _, rest = block.partition(b"\r\n")
    return first.decode("latin-1"), http.client.parse_headers(io.BytesIO(rest))


def head(first, headers, *more):
    """The bytes of a head; `more`: further (name, value)."""
    lines = [first, *(f"{name}: {value}" for name, value in (*headers.items(), *more))]
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode("latin-1")


def own_headers(headers, *without):
    """The headers without what belongs to the connection alone."""
    left = http.client.HTTPMessage()
    lost = {it.lower() for it in (*HOP_BY_HOP, *without)}
    for name, value in headers.items():
        if name.lower() not in lost:
            left.add_header(name, value)
    return left


async def read_body(reader, headers, is_answer):
    """The whole body. An answer that says no length ends with its connection."""
    pieces, size = [], 0
    async for piece in read_pieces(reader, headers, is_answer):
        size += len(piece)
        if size > MAX_BODY:
            raise ValueError(f"a body of more than {MAX_BODY} bytes")
        pieces.append(piece)
    return b"".join(pieces)


async def read_pieces(reader, headers, is_answer):
    """The body as it comes."""
    if "chunked" in headers.get("Transfer-Encoding", "").lower():
        while size := await read_size(reader):
            yield await reader.readexactly(size)
            await reader.readline()
        # Further headers, which nobody sends, up to an empty line.
        while (await reader.readline()).strip():
            pass
        return
    length = headers.get("Content-Length")
    left = int(length) if length is not None else None
    if left is None and not is_answer:
        return
    while left is None or left > 0:
        piece = await reader.read(CHUNK if left is None else min(left, CHUNK))
        if not piece:
            if left is not None:
                raise EOFError("a body ended before its length")
            return
        yield piece
        if left is not None:
            left -= len(piece)


async def read_size(reader):
    """How long the next chunk is; 0 for the last one."""
    line = await reader.readline()
    if not line:
        raise EOFError("a body ended before its last chunk")
    return int(line.split(b";")[0], 16)


async def read_lines(pieces):
    """The lines of a body that comes in pieces, each with its end."""
    rest = b""
    async for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line + b"\n"
        if len(rest) > MAX_BODY:
            raise ValueError(f"a line of more than {MAX_BODY} bytes")
    if rest:
        yield rest


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


def json_body(value):
    return json.dumps(value).encode() + b"\n"
