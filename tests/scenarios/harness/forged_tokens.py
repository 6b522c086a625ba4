"""Tokens of any content, signed or not, and a server of keys that counts its requests: what an issuer never sends."""

import base64
import http.server
import json
import re
import subprocess
import threading

WITHIN_S = 60


def encode(content):
    """A part of a token: bytes, or what is written as JSON."""
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def assemble(header, claims, sign):
    """A token whose signature `sign` makes of its first two parts."""
    message = f"{encode(header)}.{encode(claims)}"
    return f"{message}.{encode(sign(message.encode()))}"


class SigningKey:
    """An RSA key of openssl, made when the test runs."""

    def __init__(self, folder, name="issuer"):
        self.private, self.public = folder / f"{name}.pem", folder / f"{name}.pub"
        openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", self.private)
        openssl("pkey", "-in", self.private, "-pubout", "-out", self.public)

    def jwk(self, key_id, **more):
        modulus = re.search(rb"Modulus=([0-9A-F]+)", openssl("rsa", "-in", self.private, "-noout", "-modulus"))[1]
        key = {"kty": "RSA", "kid": key_id, "n": encode(bytes.fromhex(modulus.decode())), "e": encode(b"\x01\x00\x01")}
        return key | more

    def sign(self, message, *options):
        """With RSASSA-PKCS1-v1_5 and SHA-256, or as the options say."""
        return openssl("dgst", *(options or ("-sha256",)), "-sign", self.private, text=message)


def openssl(*arguments, text=None):
    done = subprocess.run(["openssl", *map(str, arguments)], input=text, capture_output=True, timeout=WITHIN_S, check=False)
    assert done.returncode == 0, f"openssl {arguments}: {done.stderr}"
    return done.stdout


class KeyServer:
    """Serves a key set on loopback."""

    def __init__(self, keys):
        self.requests = 0
        key_server, body = self, json.dumps({"keys": keys}).encode()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                key_server.requests += 1
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/jwks"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(WITHIN_S)
