"""A small client of the RocketMQ remoting protocol: frames with JSON headers over one TCP connection.

Used to administer any server under test (topics, groups, routes) and to take golden bytes, so that
no other tool is needed. Python standard library only.

    with Connection("127.0.0.1", 10911) as c:
        answer = c.request(351, {"topic": "T"})
        answer.code, answer.remark, answer.ext, answer.body
"""
import itertools
import json
import secrets
import socket
import struct
import time
from dataclasses import dataclass, field

# Request codes used here (names as in RocketMQ).
UPDATE_AND_CREATE_TOPIC = 17
GET_ROUTEINFO_BY_TOPIC = 105
GET_BROKER_CLUSTER_INFO = 106
UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200
GET_TOPIC_CONFIG = 351
GET_SUBSCRIPTIONGROUP_CONFIG = 352
SEND_MESSAGE_V2 = 310
POP_MESSAGE = 200050
ACK_MESSAGE = 200051
CHANGE_MESSAGE_INVISIBLETIME = 200053
BATCH_ACK_MESSAGE = 200151

SUCCESS, SYSTEM_BUSY = 0, 2
# How long a busy broker is asked again to make a topic or a group, seconds.
BUSY_S = 60
FRAME_BYTES_MAX = 16 * 1024 * 1024
# Version of the peer we claim to be (V5_3_3): new enough for standard JSON in route answers.
CLIENT_VERSION = 479

_opaque = itertools.count(1)


def run_id():
    """A mark for the names of a run: another one for each, also when two begin in one second."""
    return f"{int(time.time()):x}{secrets.token_hex(2)}"


class RemotingError(Exception):
    """The answer's code was not SUCCESS, or the connection broke."""


class Busy(RemotingError):
    """The server has no time now."""


@dataclass
class Frame:
    """One frame. `raw` holds the exact bytes, length field included."""
    code: int
    ext: dict
    opaque: int = 0
    flag: int = 0
    remark: str = None
    body: bytes = b""
    language: str = "OTHER"
    version: int = CLIENT_VERSION
    serialize: int = 0
    raw: bytes = field(default=b"", repr=False)


def encode_json(code, ext, body=b"", opaque=None, language="OTHER", version=CLIENT_VERSION, flag=0):
    """Bytes of a request frame whose header is JSON."""
    header = {"code": code, "flag": flag, "language": language,
              "opaque": next(_opaque) if opaque is None else opaque,
              "serializeTypeCurrentRPC": "JSON", "version": version}
    if ext:
        header["extFields"] = {k: str(v) for k, v in ext.items()}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    return struct.pack(">II", 4 + len(text) + len(body), len(text)) + text + body


def encode_binary(code, ext, body=b"", opaque=None, language=7, version=CLIENT_VERSION, flag=0, remark=None):
    """Bytes of a request frame whose header is binary (serialize type ROCKETMQ = 1)."""
    section = b""
    for key, value in (ext or {}).items():
        k, v = key.encode(), str(value).encode()
        section += struct.pack(">H", len(k)) + k + struct.pack(">I", len(v)) + v
    text = (remark or "").encode()
    opaque = next(_opaque) if opaque is None else opaque
    header = struct.pack(">HBHIII", code & 0xFFFF, language, version, opaque, flag, len(text)) + text
    header += struct.pack(">I", len(section)) + section
    return struct.pack(">II", 4 + len(header) + len(body), 1 << 24 | len(header)) + header + body


def decode(raw):
    """The Frame of the bytes of one frame (length field included)."""
    total, mark = struct.unpack_from(">II", raw)
    if total + 4 != len(raw):
        raise RemotingError(f"frame says {total} bytes, has {len(raw) - 4}")
    kind, size = mark >> 24, mark & 0xFFFFFF
    header, body = raw[8:8 + size], raw[8 + size:]
    if kind == 0:
        h = json.loads(header)
        return Frame(h["code"], h.get("extFields") or {}, h["opaque"], h.get("flag", 0), h.get("remark"),
                     body, h.get("language"), h.get("version", 0), 0, raw)
    code, language, version, opaque, flag, n = struct.unpack_from(">HBHIII", header)
    at = 17
    remark = header[at:at + n].decode() or None
    at += n
    end = at + 4 + struct.unpack_from(">I", header, at)[0]
    at += 4
    ext = {}
    while at < end:
        n, = struct.unpack_from(">H", header, at)
        key = header[at + 2:at + 2 + n].decode()
        at += 2 + n
        n, = struct.unpack_from(">I", header, at)
        ext[key] = header[at + 4:at + 4 + n].decode()
        at += 4 + n
    return Frame(code, ext, opaque, flag, remark, body, language, version, 1, raw)


class Connection:
    """One connection; one request at a time."""

    def __init__(self, host, port, timeout_s=10.0):
        self.sock = socket.create_connection((host, int(port)), timeout=timeout_s)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def _read(self, count):
        parts = bytearray()
        while len(parts) < count:
            part = self.sock.recv(min(count - len(parts), 1 << 16))
            if not part:
                raise RemotingError("connection closed by the server")
            parts += part
        return bytes(parts)

    def exchange(self, raw):
        """Sends the bytes of a request; the Frame of its answer (requests of the server are skipped)."""
        self.sock.sendall(raw)
        opaque = decode(raw).opaque
        while True:
            head = self._read(4)
            size, = struct.unpack(">I", head)
            if size > FRAME_BYTES_MAX:
                raise RemotingError(f"frame of {size} bytes")
            frame = decode(head + self._read(size))
            if frame.flag & 1 and frame.opaque == opaque:
                return frame

    def request(self, code, ext, body=b""):
        """Sends a request with a JSON header; the answer, whatever its code."""
        return self.exchange(encode_json(code, ext, body))


def call(address, code, ext, body=b"", timeout_s=10.0):
    """One request to "host:port" on a connection of its own; raises RemotingError unless SUCCESS."""
    host, _, port = address.rpartition(":")
    with Connection(host, port, timeout_s) as c:
        answer = c.request(code, ext, body)
    if answer.code != SUCCESS:
        kind = Busy if answer.code == SYSTEM_BUSY else RemotingError
        raise kind(f"{address} answered {answer.code} to {code}: {answer.remark}")
    return answer


def topic_header(topic, message_type="NORMAL", queues=4):
    """Header of UPDATE_AND_CREATE_TOPIC; message_type None leaves the attribute away."""
    header = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues,
              "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}
    if message_type:
        header["attributes"] = f"+message.type={message_type}"
    return header


def send_header(topic, message_id, sys_flag=0):
    """Header of SEND_MESSAGE_V2, as producers of the remoting protocol send it, to any queue."""
    return {"a": "producers", "b": topic, "c": "TBW102", "d": 4, "e": -1, "f": sys_flag, "g": int(time.time() * 1000), "h": 0,
            "i": f"UNIQ_KEY\x01{message_id}\x02WAIT\x01true\x02", "j": 0, "k": "false", "m": "false"}


def group_body(group, retry_max_times=16, orderly=False, retry_ms=None, consume_timeout_min=15):
    """Body of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP; retry_ms is a customised back-off list in milliseconds."""
    config = {"groupName": group, "consumeEnable": True, "consumeFromMinEnable": True,
              "consumeBroadcastEnable": True, "consumeMessageOrderly": orderly, "retryQueueNums": 1,
              "retryMaxTimes": retry_max_times, "brokerId": 0, "whichBrokerWhenConsumeSlowly": 1,
              "notifyConsumerIdsChangedEnable": True, "groupSysFlag": 0,
              "consumeTimeoutMinute": consume_timeout_min, "attributes": {}}
    if retry_ms:
        config["groupRetryPolicy"] = {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": list(retry_ms)}}
    return json.dumps(config).encode()


class Admin:
    """Creates topics and groups on every broker behind the given addresses.

    An address is a broker, or a name server, which is asked for its brokers. Addresses: "host:port[,…]".
    """

    def __init__(self, addresses):
        self.name_servers, self.brokers = [], []
        for address in filter(None, (a.strip() for a in addresses.split(","))):
            found = self._brokers_behind(address)
            if found:
                self.name_servers.append(address)
            for broker in found or [address]:
                if broker not in self.brokers:
                    self.brokers.append(broker)

    @staticmethod
    def _brokers_behind(address):
        """Master addresses a name server knows; empty for an address that is no name server."""
        host, _, port = address.rpartition(":")
        with Connection(host, port) as c:
            answer = c.request(GET_BROKER_CLUSTER_INFO, {})
        if answer.code != SUCCESS or not answer.body:
            return []
        # Apache writes numeric map keys without quotes; quote them.
        import re
        table = json.loads(re.sub(rb"([{,])(\d+):", rb'\1"\2":', answer.body))
        entries = (table.get("brokerAddrTable") or {}).values()
        return [e["brokerAddrs"]["0"] for e in entries if "0" in e.get("brokerAddrs", {})]

    def create_topic(self, topic, message_type="NORMAL", queues=4):
        self._make(UPDATE_AND_CREATE_TOPIC, topic_header(topic, message_type, queues))

    def create_group(self, group, **settings):
        self._make(UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, group_body(group, **settings))

    def send(self, topic, message_id, body, sys_flag=0):
        """Sends a message to the first broker."""
        call(self.brokers[0], SEND_MESSAGE_V2, send_header(topic, message_id, sys_flag), body)

    def _make(self, code, header, body=b""):
        """Asks every broker; a busy one again, which is harmless, for what is there already stays as it is."""
        for broker in self.brokers:
            end = time.monotonic() + BUSY_S
            while True:
                try:
                    call(broker, code, header, body)
                    break
                except (Busy, TimeoutError):
                    if time.monotonic() > end:
                        raise
                    time.sleep(0.5)

    def topic_routed(self, topic):
        """Whether every name server has a route of the topic (true where there is none to ask)."""
        for server in self.name_servers:
            host, _, port = server.rpartition(":")
            with Connection(host, port) as c:
                if c.request(GET_ROUTEINFO_BY_TOPIC, {"topic": topic, "acceptStandardJsonOnly": "true"}).code != SUCCESS:
                    return False
        return True
