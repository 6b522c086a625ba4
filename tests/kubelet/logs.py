"""The part of a kubelet that the API server asks for the logs of containers, over HTTPS on loopback."""

import http.server
import ssl
import threading
import urllib.parse

BAD_REQUEST = 400
PATHS = "containerLogs"


class Logs:
    """Serves what `log(namespace, pod, container, previous)` answers, `None` if there is none. The certificate is the API
    server's own, which doesn't look at it."""

    def __init__(self, log, certificates):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates / "apiserver.crt", certificates / "apiserver.key")
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler_of(log))
        self.server.daemon_threads = True
        # The handshake is done by the thread of the request, so that nobody waits for somebody else's.
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True, name="kubelet's logs")
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def handler_of(log):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            path = urllib.parse.urlsplit(self.path)
            words = path.path.strip("/").split("/")
            query = dict(urllib.parse.parse_qsl(path.query))
            found = None
            if len(words) == 4 and words[0] == PATHS:
                found = log(*words[1:], query.get("previous") == "true")
            text = cut(found, query) if found is not None else "there is no such container"
            self.send_response(200 if found is not None else BAD_REQUEST)
            self.send_header("Content-Type", "text/plain")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_):
            pass

    return Handler


def cut(text, query):
    """The part that is asked for: the last lines, of these the first bytes."""
    if "tailLines" in query:
        lines = text.splitlines(keepends=True)
        text = "".join(lines[max(0, len(lines) - int(query["tailLines"])) :])
    if "limitBytes" in query:
        text = text.encode()[: int(query["limitBytes"])].decode(errors="ignore")
    return text
