"""PyHive over plain Thrift with a deadline for every answer, which PyHive's own transports don't have.

Light: no SASL, one connection, nothing but the session. The server takes the user from OpenSession.
"""

import logging

from pyhive import hive
from thrift.transport import TSocket, TTransport

from harness.clients import split

ANSWER_WITHIN_S = 75
logging.getLogger("thrift").setLevel(logging.CRITICAL)


def open_session(address, user):
    host, port = split(address)
    socket = TSocket.TSocket(host, port)
    socket.setTimeout(ANSWER_WITHIN_S * 1000)
    transport = TTransport.TBufferedTransport(socket)
    # PyHive opens the transport, and leaves it open if the session is refused.
    try:
        return hive.connect(thrift_transport=transport, username=user)
    except Exception:
        transport.close()
        raise
