#!/usr/bin/env python3
"""Takes golden bytes from a real Apache RocketMQ 5.5.0 and writes them into protocol/tests/golden.

    capture.py [--out DIR]

How the bytes are taken:

1. `ask`: this program sends a request over a raw socket to Apache's broker or name server and stores both the
   request it sent and the bytes that came back. Requests are made by ../remoting.py, answers by Apache.
2. `relay`: broker and name server are announced at 127.0.0.2, where a relay of this program listens, stores every
   frame that passes, and hands it on unchanged to the real one at 127.0.0.1. So the requests too are Apache's own:
   made by its proxy (driven over gRPC), its admin tool and its broker.
3. `binary`: the same two with processes started with -Drocketmq.serialize.type=ROCKETMQ.

The gRPC client that drives the proxy is grpcio with the message classes inside the PyPI package
rocketmq-python-client, from the virtual environment that ../run makes; this program starts itself there.
Everything is on loopback; all servers are stopped by process id at the end.
"""
import argparse
import base64
import json
import os
import pathlib
import socket
import struct
import subprocess
import sys
import threading
import time
import zlib

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE.parent.parent / "protocol" / "tests" / "golden"
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "apache")]
import remoting  # noqa: E402
from apache import Apache, class_path  # noqa: E402

TOPIC, GROUP, PRODUCER = "golden-topic", "golden-group", "golden-producer"
TRIO, JAVA = "golden-trio", "golden-java"
TEXT = "Grüße 你好 🚚"


# --- what is stored -------------------------------------------------------------------------------------------------

class Golden:
    """Collects files and what an independent decoder (this program) reads in them."""

    def __init__(self, out):
        self.out, self.rows, self.index = out, [], {}

    def add(self, name, data, what, how):
        (self.out / name).write_bytes(data)
        self.rows.append((name, len(data), what, how))
        return name

    def frame(self, name, raw, what, how):
        f = remoting.decode(raw)
        self.index[self.add(name, raw, what, how)] = {
            "serialize": "JSON" if f.serialize == 0 else "ROCKETMQ", "code": f.code, "language": f.language,
            "version": f.version, "opaque": f.opaque, "flag": f.flag, "remark": f.remark, "ext": f.ext,
            "body_bytes": len(f.body), "body_crc32": zlib.crc32(f.body)}

    def pair(self, stem, request, answer, what, how):
        self.frame(f"{stem}.request.bin", request, f"{what}: request", how)
        self.frame(f"{stem}.response.bin", answer, f"{what}: answer", how)

    def messages(self, name, data, what, how):
        self.index[self.add(name, data, what, how)] = {"messages": [show(m) for m in messages(data)]}

    def write(self):
        (self.out / "index.json").write_text(json.dumps(self.index, indent=1, ensure_ascii=False) + "\n")
        lines = ["# Golden bytes of Apache RocketMQ 5.5.0", "",
                 "Written by `conformance/golden/capture.py`; its head says what `ask`, `relay` and `binary` mean.",
                 "`index.json` has what an independent decoder (Python, `conformance/remoting.py` and `capture.py`) reads in each",
                 "file: header fields, length and CRC32 of the body; for messages every field, bytes as base64.",
                 "A frame file holds one whole frame, length field included. Times, offsets and ports are those of the",
                 "day; nothing may depend on them but through `index.json`.", "",
                 "| file | bytes | what | how |", "|---|---|---|---|"]
        lines += [f"| `{n}` | {size} | {what} | {how} |" for n, size, what, how in self.rows]
        (self.out / "README.md").write_text("\n".join(lines) + "\n")


def messages(data):
    """Splits and decodes concatenated messages in the stored form (MessageDecoder)."""
    at, found = 0, []
    while at < len(data):
        total, magic, crc, queue, flag = struct.unpack_from(">iiIii", data, at)
        queue_offset, physical, sys_flag, born = struct.unpack_from(">qqiq", data, at + 20)
        p, hosts = at + 48, []
        for bit in (0x10, 0x20):
            n = 16 if sys_flag & bit else 4
            ip = socket.inet_ntop(socket.AF_INET6 if n == 16 else socket.AF_INET, data[p:p + n])
            hosts.append(f"{ip}:{struct.unpack_from('>i', data, p + n)[0]}")
            p += n + 4
            if bit == 0x10:
                stored, = struct.unpack_from(">q", data, p)
                p += 8
        reconsume, prepared, size = struct.unpack_from(">iqi", data, p)
        p += 16
        body = data[p:p + size]
        p += size
        wide = magic == -626843477
        n = struct.unpack_from(">H" if wide else ">B", data, p)[0]
        p += 2 if wide else 1
        topic = data[p:p + n].decode()
        p += n
        n, = struct.unpack_from(">H", data, p)
        text = data[p + 2:p + 2 + n]
        p += 2 + n
        assert p == at + total, (p, at, total)
        properties = dict(e.split(b"\x01", 1) for e in text.split(b"\x02") if e)
        found.append(dict(total=total, magic=magic, body_crc=crc, queue_id=queue, flag=flag, queue_offset=queue_offset,
                          physical_offset=physical, sys_flag=sys_flag, born_timestamp=born, born_host=hosts[0],
                          store_timestamp=stored, store_host=hosts[1], reconsume_times=reconsume,
                          prepared_transaction_offset=prepared, body=body, topic=topic, properties_text=text,
                          properties={k.decode(): v.decode() for k, v in properties.items()}, raw=data[at:p]))
        at = p
    return found


def show(m):
    m = {k: v for k, v in m.items() if k != "raw"}
    for k in ("body", "properties_text"):
        m[k] = base64.b64encode(m[k]).decode()
    return m


# --- asking ---------------------------------------------------------------------------------------------------------

def properties(**kv):
    return "".join(f"{k}\x01{v}\x02" for k, v in kv.items())


def send_header(topic, props, queue=0):
    return {"a": PRODUCER, "b": topic, "c": "TBW102", "d": 4, "e": queue, "f": 0, "g": int(time.time() * 1000),
            "h": 0, "i": props, "j": 0, "k": "false", "l": 0, "m": "false"}


def pop_header(topic, count, poll_ms=1000):
    return {"consumerGroup": GROUP, "topic": topic, "queueId": -1, "maxMsgNums": count, "invisibleTime": 60000,
            "pollTime": poll_ms, "bornTime": int(time.time() * 1000), "initMode": 0, "expType": "TAG", "exp": "*",
            "order": "false"}


def handles(answer, broker="broker-a"):
    """(queue id, offset, handle) of each message of a POP answer, as upstream's client derives them."""
    starts = {tuple(e.split(" ")[:2]): e.split(" ")[2] for e in answer.ext["startOffsetInfo"].split(";")}
    for entry in answer.ext["msgOffsetInfo"].split(";"):
        marker, queue, offsets = entry.split(" ")
        for offset in offsets.split(","):
            yield int(queue), int(offset), " ".join([
                starts[marker, queue], answer.ext["popTime"], answer.ext["invisibleTime"], answer.ext["reviveQid"],
                marker, broker, queue, offset])


THREE = [(b"first body", dict(UNIQ_KEY="01AABBCCDDEEFF00010000000000000001")),
         (TEXT.encode(), dict(UNIQ_KEY="01AABBCCDDEEFF00010000000000000002", TAGS="TagA", KEYS="k1 k2",
                              greeting=TEXT, plain="value with spaces = ; :")),
         (bytes(range(256)), dict(UNIQ_KEY="01AABBCCDDEEFF00010000000000000003", TAGS="TagB"))]


class Asker:
    """Sends requests on one connection and stores the pairs."""

    def __init__(self, golden, address, how):
        self.golden, self.how = golden, how
        host, _, port = address.rpartition(":")
        self.connection = remoting.Connection(host, port, 30)

    def ask(self, stem, code, ext, body=b"", what=""):
        raw = remoting.encode_json(code, ext, body)
        answer = self.connection.exchange(raw)
        if stem:
            self.golden.pair(stem, raw, answer.raw, what, self.how)
        return answer

    def ask_binary(self, stem, code, ext, body=b"", what=""):
        raw = remoting.encode_binary(code, ext, body)
        answer = self.connection.exchange(raw)
        self.golden.pair(stem, raw, answer.raw, what, self.how)
        return answer


def make_topics(broker, *names):
    for name in names:
        remoting.call(broker, remoting.UPDATE_AND_CREATE_TOPIC, remoting.topic_header(name, queues=1))
    remoting.call(broker, remoting.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None,
                  remoting.group_body(GROUP, retry_ms=[1000, 2000, 3000]))


def wait_route(namesrv, topic):
    for _ in range(100):
        try:
            return remoting.call(namesrv, 105, {"topic": topic, "acceptStandardJsonOnly": "true"})
        except remoting.RemotingError:
            time.sleep(0.1)
    raise SystemExit(f"no route of {topic}")


def ask_json(golden, apache):
    make_topics(apache.broker, TOPIC, TRIO)
    wait_route(apache.namesrv, TOPIC)
    a = Asker(golden, apache.broker, "ask")
    r = remoting
    a.ask("json-update-and-create-topic", r.UPDATE_AND_CREATE_TOPIC, r.topic_header(TOPIC, queues=1), what="UPDATE_AND_CREATE_TOPIC 17")
    a.ask("json-update-and-create-group", r.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None,
          r.group_body(GROUP, retry_ms=[1000, 2000, 3000]), what="UPDATE_AND_CREATE_SUBSCRIPTIONGROUP 200 with customised retry policy")
    a.ask("json-get-topic-config", r.GET_TOPIC_CONFIG, {"topic": TOPIC, "lo": "true"}, what="GET_TOPIC_CONFIG 351")
    a.ask("json-get-topic-config-absent", r.GET_TOPIC_CONFIG, {"topic": "golden-absent"}, what="GET_TOPIC_CONFIG 351, no such topic")
    a.ask("json-get-group-config", r.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": GROUP}, what="GET_SUBSCRIPTIONGROUP_CONFIG 352")
    a.ask("json-get-group-config-absent", r.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "golden-absent"},
          what="GET_SUBSCRIPTIONGROUP_CONFIG 352, no such group (auto-creation off)")
    a.ask("json-unknown-code", 29999, {"some": "field"}, what="unknown request code 29999")
    a.ask("json-send-absent-topic", r.SEND_MESSAGE_V2, send_header("golden-absent", properties(UNIQ_KEY="x")), b"b",
          what="SEND_MESSAGE_V2 310 to a missing topic (auto-creation off)")
    a.ask("json-pop-absent-group", r.POP_MESSAGE, pop_header(TOPIC, 1) | {"consumerGroup": "golden-absent"},
          what="POP_MESSAGE 200050, no such group (auto-creation off)")
    a.ask("json-pop-absent-topic", r.POP_MESSAGE, pop_header("golden-absent", 1), what="POP_MESSAGE 200050, no such topic")
    # The first pop of a group fixes where it starts, so pop before sending.
    a.ask("json-pop-message-none", r.POP_MESSAGE, pop_header(TRIO, 3), what="POP_MESSAGE 200050, nothing until the poll time of 1 s ended")
    for n, (body, props) in enumerate(THREE, 1):
        stem = "json-send-message-v2" if n == 2 else None
        a.ask(stem, r.SEND_MESSAGE_V2, send_header(TRIO, properties(**props)), body,
              what="SEND_MESSAGE_V2 310 with tag, two keys, unicode property and body")
    time.sleep(1)
    popped = a.ask("json-pop-message", r.POP_MESSAGE, pop_header(TRIO, 3),
                   what="POP_MESSAGE 200050, found 3 (the second with tag, keys, unicode properties)")
    assert len(messages(popped.body)) == 3, popped
    golden.messages("message-ipv4-three.bin", popped.body, "three concatenated messages in the stored form (IPv4 hosts)",
                    "body of json-pop-message.response.bin")
    for n, m in enumerate(messages(popped.body), 1):
        golden.messages(f"message-ipv4-{n}.bin", m["raw"], ["plain", "tag, keys, unicode properties and body", "all 256 byte values"][n - 1],
                        "cut from message-ipv4-three.bin")
    (q, offset, handle), second, third = handles(popped)
    one = {"consumerGroup": GROUP, "topic": TRIO, "queueId": q}
    a.ask("json-ack-message", r.ACK_MESSAGE, one | {"extraInfo": handle, "offset": offset}, what="ACK_MESSAGE 200051, eight-field handle")
    a.ask("json-ack-absent-topic", r.ACK_MESSAGE, one | {"extraInfo": handle, "offset": offset, "topic": "golden-absent"},
          what="ACK_MESSAGE 200051, no such topic")
    a.ask("json-ack-offset-out-of-range", r.ACK_MESSAGE, one | {"extraInfo": handle, "offset": 999}, what="ACK_MESSAGE 200051, offset never reached")
    a.ask("json-change-invisible-time", r.CHANGE_MESSAGE_INVISIBLETIME,
          one | {"extraInfo": second[2], "offset": second[1], "invisibleTime": 120000},
          what="CHANGE_MESSAGE_INVISIBLETIME 200053 to 120 s")
    f = third[2].split(" ")
    batch = {"brokerName": "broker-a", "acks": [{"c": GROUP, "t": TRIO, "r": f[4], "so": int(f[0]), "q": int(f[6]),
             "rq": int(f[3]), "pt": int(f[1]), "it": int(f[2]), "b": base64.b64encode(bits([third[1] - int(f[0])])).decode()}]}
    a.ask("json-batch-ack-message", r.BATCH_ACK_MESSAGE, None, json.dumps(batch).encode(), what="BATCH_ACK_MESSAGE 200151")
    a.ask("json-batch-ack-empty", r.BATCH_ACK_MESSAGE, None, b'{"brokerName":"broker-a","acks":[]}', what="BATCH_ACK_MESSAGE 200151 without acks")
    # A redelivery: pop with a short lease, let it end, pop again. Apache answers from the retry topic.
    a.ask(None, r.SEND_MESSAGE_V2, send_header(TOPIC, properties(UNIQ_KEY="01AABBCCDDEEFF00010000000000000004", TAGS="TagA")), b"again")
    for _ in range(20):
        first = a.ask(None, r.POP_MESSAGE, pop_header(TOPIC, 1) | {"invisibleTime": 1000})
        if first.code == 0:
            break
    for _ in range(40):
        raw = r.encode_json(r.POP_MESSAGE, pop_header(TOPIC, 1))
        second = a.connection.exchange(raw)
        if second.code == 0:
            break
    golden.pair("json-pop-message-retry", raw, second.raw, "POP_MESSAGE 200050, a redelivery (second delivery, from the retry topic)", "ask")
    golden.messages("message-ipv4-retry.bin", second.body, "a redelivered message: retry topic, reconsume times 1 and POP_CK as Apache writes them",
                    "body of json-pop-message-retry.response.bin")
    n = Asker(golden, apache.namesrv, "ask")
    n.ask("json-get-route", r.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC, "acceptStandardJsonOnly": "true"}, what="GET_ROUTEINFO_BY_TOPIC 105, standard JSON")
    n.ask("json-get-route-absent", r.GET_ROUTEINFO_BY_TOPIC, {"topic": "golden-absent"}, what="GET_ROUTEINFO_BY_TOPIC 105, no such topic")
    raw = r.encode_json(r.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC}, version=0)
    n.golden.pair("json-get-route-old-client", raw, n.connection.exchange(raw).raw,
                  "GET_ROUTEINFO_BY_TOPIC 105 from version 0: map keys without quotes", "ask")
    n.ask("json-get-cluster-info", r.GET_BROKER_CLUSTER_INFO, {}, what="GET_BROKER_CLUSTER_INFO 106: map keys without quotes")


def bits(offsets):
    """java.util.BitSet.toByteArray()."""
    out = bytearray(max(offsets) // 8 + 1)
    for i in offsets:
        out[i // 8] |= 1 << i % 8
    return bytes(out)


def ask_binary(golden, apache):
    make_topics(apache.broker, TOPIC)
    wait_route(apache.namesrv, TOPIC)
    r = remoting
    a = Asker(golden, apache.broker, "binary, ask")
    a.ask_binary("binary-get-topic-config", r.GET_TOPIC_CONFIG, {"topic": TOPIC}, what="GET_TOPIC_CONFIG 351")
    a.ask_binary("binary-get-topic-config-absent", r.GET_TOPIC_CONFIG, {"topic": "golden-absent"}, what="GET_TOPIC_CONFIG 351, no such topic (remark)")
    a.ask_binary("binary-send-message-v2", r.SEND_MESSAGE_V2, send_header(TOPIC, properties(**THREE[1][1])), THREE[1][0],
                 what="SEND_MESSAGE_V2 310 with tag, two keys, unicode property and body")
    a.ask_binary("binary-unknown-code", 29999, {"some": "field"}, what="unknown request code 29999")
    a.ask_binary("binary-pop-message", r.POP_MESSAGE, pop_header(TOPIC, 3),
                 what="POP_MESSAGE 200050: the code is cut to 3442 and refused")
    n = Asker(golden, apache.namesrv, "binary, ask")
    n.ask_binary("binary-get-route", r.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC, "acceptStandardJsonOnly": "true"}, what="GET_ROUTEINFO_BY_TOPIC 105")


# --- relaying -------------------------------------------------------------------------------------------------------

class Relay:
    """Listens on 127.0.0.2:<port>, hands every byte on to 127.0.0.1:<port> and keeps the frames that pass."""

    def __init__(self, port):
        self.port, self.frames, self.lock = port, [], threading.Lock()
        self.listener = socket.create_server(("127.0.0.2", port))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                inner, _ = self.listener.accept()
            except OSError:
                return
            try:
                outer = socket.create_connection(("127.0.0.1", self.port))
            except OSError:
                inner.close()
                continue
            for number, (a, b, way) in enumerate(((inner, outer, "in"), (outer, inner, "out"))):
                threading.Thread(target=self._pump, args=(a, b, way, id(inner)), daemon=True).start()

    def _pump(self, source, target, way, connection):
        pending = bytearray()
        try:
            while data := source.recv(1 << 16):
                target.sendall(data)
                pending += data
                while len(pending) >= 4 and len(pending) >= 4 + int.from_bytes(pending[:4], "big"):
                    size = 4 + int.from_bytes(pending[:4], "big")
                    with self.lock:
                        self.frames.append((way, connection, bytes(pending[:size])))
                    del pending[:size]
        except OSError:
            pass
        for s in (source, target):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def find(self, code, wanted=lambda request, answer: True):
        """(request, answer) bytes of the first exchange of a code that fits; answer None for a one-way request."""
        with self.lock:
            frames = list(self.frames)
        answers = {(c, remoting.decode(raw).opaque): raw for w, c, raw in frames if remoting.decode(raw).flag & 1}
        for _, connection, raw in frames:
            f = remoting.decode(raw)
            answer = answers.get((connection, f.opaque))
            if f.flag & 1 or f.code & 0xFFFF != code & 0xFFFF:
                continue
            if wanted(f, answer and remoting.decode(answer)):
                return raw, answer
        return None

    def close(self):
        self.listener.close()


def relayed(golden, relay, prefix, wanted, how):
    missing = []
    for name, code, what, fits in wanted:
        found = relay.find(code, fits)
        if not found:
            missing.append(name)
            continue
        request, answer = found
        golden.frame(f"{prefix}-{name}.request.bin", request, f"{what}: request", how)
        if answer:
            golden.frame(f"{prefix}-{name}.response.bin", answer, f"{what}: answer", how)
    if missing:
        print(f"not seen by the relay: {missing}", file=sys.stderr)


def admin_tool(apache_dir, *arguments, serialize="JSON"):
    """Runs upstream's admin tool in a small JVM."""
    subprocess.run(["java", "-Xmx96m", f"-Duser.home={apache_dir}", f"-Drocketmq.home.dir={apache_dir}",
                    f"-Drocketmq.serialize.type={serialize}", "-cp", f"{apache_dir}/conf:{class_path()}",
                    "org.apache.rocketmq.tools.command.MQAdminStartup", *arguments],
                   check=True, timeout=60, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def with_relays(serialize, batch_ack=False):
    """An Apache whose broker and name server are reached over relays at 127.0.0.2."""
    a = Apache(auto_create_topic=False, auto_create_group=False, serialize=serialize, batch_ack=batch_ack)
    a.options["broker_set"] = {"brokerIP1": "127.0.0.2", "namesrvAddr": f"127.0.0.2:{a.ports['namesrv']}"}
    a.options["proxy_set"] = {"namesrvAddr": f"127.0.0.2:{a.ports['namesrv']}"}
    return a, Relay(a.ports["broker"]), Relay(a.ports["namesrv"])


def relay_json(golden):
    import drive  # needs grpcio
    a, broker, namesrv = with_relays(None, batch_ack=True)
    try:
        with a:
            make_topics(a.broker, JAVA)
            wait_route(a.namesrv, JAVA)
            drive.drive(a.endpoint, JAVA, GROUP)
            for arguments in (("updateTopic", "-t", "golden-tool", "-a", "+message.type=FIFO"), ("updateSubGroup", "-g", "golden-tool-group"),
                              ("clusterList",), ("topicStatus", "-t", JAVA), ("consumerProgress", "-g", GROUP)):
                address = ("-b", f"127.0.0.2:{a.ports['broker']}") if arguments[0].startswith("update") else ()
                admin_tool(a.dir, arguments[0], "-n", f"127.0.0.2:{a.ports['namesrv']}", *address, *arguments[1:])
            any_ = lambda q, r: True  # noqa: E731
            ok = lambda q, r: r and r.code == 0  # noqa: E731
            relayed(golden, broker, "proxy", [
                ("send-message-v2", 310, "SEND_MESSAGE_V2 of Apache's proxy", lambda q, r: ok(q, r) and q.ext.get("b") == JAVA),
                ("send-batch-message", 320, "SEND_BATCH_MESSAGE of Apache's proxy", ok),
                ("pop-message", 200050, "POP_MESSAGE of Apache's proxy, found", ok),
                ("pop-message-none", 200050, "POP_MESSAGE of Apache's proxy, nothing", lambda q, r: r and r.code == 210),
                ("batch-ack-message", 200151, "BATCH_ACK_MESSAGE of Apache's proxy (enableBatchAck)", ok),
                ("ack-message", 200051, "ACK_MESSAGE of Apache's proxy (nine-field handle)", ok),
                ("change-invisible-time", 200053, "CHANGE_MESSAGE_INVISIBLETIME of Apache's proxy (nine-field handle)", ok),
                ("consumer-send-msg-back", 36, "CONSUMER_SEND_MSG_BACK of Apache's proxy", ok),
                ("get-topic-config", 351, "GET_TOPIC_CONFIG of Apache's proxy", ok),
                ("get-group-config", 352, "GET_SUBSCRIPTIONGROUP_CONFIG of Apache's proxy", ok),
                ("heart-beat", 34, "HEART_BEAT of Apache's proxy", any_),
                ("create-topic", 17, "UPDATE_AND_CREATE_TOPIC of Apache's proxy (its heartbeat topic)",
                 lambda q, r: q.ext.get("topic") == "DefaultHeartBeatSyncerTopic"),
            ], "relay")
            relayed(golden, broker, "tool", [
                ("update-topic", 17, "UPDATE_AND_CREATE_TOPIC of the admin tool", lambda q, r: q.ext.get("topic") == "golden-tool"),
                ("update-group", 200, "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP of the admin tool", lambda q, r: b"golden-tool-group" in q.body),
                ("runtime-info", 28, "GET_BROKER_RUNTIME_INFO of the admin tool", ok),
                ("topic-stats", 202, "GET_TOPIC_STATS_INFO of the admin tool: map keys are objects", ok),
                ("consume-stats", 208, "GET_CONSUME_STATS of the admin tool: map keys are objects", ok),
            ], "relay")
            relayed(golden, namesrv, "namesrv", [
                ("register-broker", 103, "REGISTER_BROKER of Apache's broker", ok),
                ("get-route", 105, "GET_ROUTEINFO_BY_TOPIC of Apache's proxy", ok),
                ("get-route-absent", 105, "GET_ROUTEINFO_BY_TOPIC of Apache, no such topic", lambda q, r: r and r.code == 17),
                ("get-cluster-info", 106, "GET_BROKER_CLUSTER_INFO of Apache", ok),
            ], "relay")
    finally:
        broker.close()
        namesrv.close()


def relay_binary(golden):
    a, broker, namesrv = with_relays("ROCKETMQ")
    try:
        # The proxy speaks POP, which binary headers cannot carry; name server and broker are enough here.
        a.up(proxy=False)
        ask_binary(golden, a)
        admin_tool(a.dir, "updateTopic", "-n", f"127.0.0.2:{a.ports['namesrv']}", "-b", f"127.0.0.2:{a.ports['broker']}",
                   "-t", "golden-tool", serialize="ROCKETMQ")
        admin_tool(a.dir, "topicRoute", "-n", f"127.0.0.2:{a.ports['namesrv']}", "-t", TOPIC, serialize="ROCKETMQ")
        relayed(golden, broker, "binary-tool", [
            ("update-topic", 17, "UPDATE_AND_CREATE_TOPIC of the admin tool", lambda q, r: q.ext.get("topic") == "golden-tool")], "binary, relay")
        relayed(golden, namesrv, "binary-namesrv", [
            ("register-broker", 103, "REGISTER_BROKER of Apache's broker", lambda q, r: r and r.code == 0),
            ("get-route", 105, "GET_ROUTEINFO_BY_TOPIC of the admin tool", lambda q, r: r and r.code == 0 and q.serialize == 1)], "binary, relay")
    finally:
        a.down()
        broker.close()
        namesrv.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=GOLDEN)
    a = parser.parse_args()
    try:
        import grpc  # noqa: F401
    except ImportError:
        from environment import python  # makes ../.cache/venv when missing
        os.execv(python(), [str(python()), *sys.argv])
    a.out.mkdir(parents=True, exist_ok=True)
    golden = Golden(a.out)
    with Apache(auto_create_topic=False, auto_create_group=False) as apache:
        ask_json(golden, apache)
    relay_json(golden)
    relay_binary(golden)
    golden.write()
    print(f"{len(golden.rows)} files")


if __name__ == "__main__":
    main()
