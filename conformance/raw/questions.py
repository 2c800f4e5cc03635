"""The questions of the raw prober, in scenarios that run beside each other. Answers have the form of expected.tsv."""
import re
import time
import uuid

import grpc
from google.protobuf.json_format import MessageToDict
from rawclient import RawClient, d, s

PROBES = []
BODY_BYTES_MAX = 4 * 1024 * 1024
HOUR_S = 3600


def scenario(function):
    PROBES.append(function)
    return function


def status(answer):
    """`20000 OK 'OK' entry[…]` of any answer with a status."""
    text = one(answer.status)
    if hasattr(answer, "entries"):
        text += "".join(f" entry[{one(e.status)}]" for e in answer.entries)
    return text


def one(st):
    try:
        name = d.Code.Name(st.code)
    except ValueError:
        name = "?"
    return f"{st.code} {name} {st.message!r}"


def tree(message):
    return MessageToDict(message, preserving_proto_field_name=True)


class NotAsked(Exception):
    """The question could not be put."""


def n_a(reason):
    raise NotAsked(reason)


def error(e):
    return f"grpc {e.code().name}: {e.details()}"


class Names:
    """Topics and groups of one run; `plain` takes the run's mark out of an answer."""

    def __init__(self, run_id, admin, endpoint):
        self.mark, self.admin, self.endpoint = f"raw-{run_id}-", admin, endpoint

    def __call__(self, name):
        return self.mark + name

    def topic(self, name, kind="NORMAL", queues=4):
        self.admin.create_topic(self(name), kind, queues)
        while not self.admin.topic_routed(self(name)):
            time.sleep(0.1)
        return self(name)

    def group(self, name, **settings):
        self.admin.create_group(self(name), **settings)
        return self(name)

    def client(self, **more):
        return RawClient(self.endpoint, **more)


@scenario
def meta_and_route(n, ask):
    n.topic("normal")
    c = n.client()
    bare = n.client()
    bare.metadata = [m for m in bare.metadata if m[0] != "x-mq-client-id"]
    ask("meta.no_client_id.heartbeat", lambda: status(bare.heartbeat(d.ClientType.PRODUCER)))
    ask("meta.no_client_id.route", lambda: status(bare.route(n("normal"))))
    mute = n.client()
    mute.metadata = [m for m in mute.metadata if m[0] != "x-mq-language"]
    ask("meta.no_language.route", lambda: status(mute.route(n("normal"))))
    ask("route.ok", lambda: status(c.route(n("normal"))))
    ask("route.ok.json", lambda: tree(c.route(n("normal"))))
    for name, topic in (("missing", n("nosuch")), ("empty", ""), ("illegal_char", "bad topic!"), ("long_200", "x" * 200),
                        ("system_topic", "TBW102"), ("system_topic2", "rmq_sys_whatever"), ("dlq_absent", "%DLQ%" + n("g-nosuch"))):
        ask(f"route.{name}", lambda: status(c.route(topic)))
    ask("route.no_endpoints", lambda: status(c.route(n("normal"), endpoints=False)))


@scenario
def telemetry(n, ask):
    for topic in ("normal", "push", "pushretry", "sql"):
        n.topic(topic)
    n.topic("pushfifo", "FIFO")
    n.group("g-normal")
    n.group("g-push")
    n.group("g-pushfifo", orderly=True, retry_max_times=3)
    n.group("g-pushretry", retry_max_times=3, retry_ms=[1000, 2000, 3000])
    n.group("g-sql")
    push, simple = d.ClientType.PUSH_CONSUMER, d.ClientType.SIMPLE_CONSUMER
    clients = []

    def first(settings):
        c = n.client()
        clients.append(c)
        try:
            return tree(c.open(settings(c)))
        except grpc.RpcError as e:
            return error(e)

    ask("telemetry.producer.reply", lambda: first(lambda c: c.producer_settings(n("normal"))))
    ask("telemetry.producer.missing_topic.reply", lambda: first(lambda c: c.producer_settings(n("nosuch"))))
    ask("telemetry.simple_consumer.reply", lambda: first(lambda c: c.consumer_settings(n("g-normal"), n("normal"))))
    ask("telemetry.push_consumer.reply", lambda: first(lambda c: c.consumer_settings(n("g-push"), n("push"), push)))
    ask("telemetry.push_consumer.fifo_group.reply", lambda: first(lambda c: c.consumer_settings(n("g-pushfifo"), n("pushfifo"), push)))
    ask("telemetry.push_consumer.custom_retry_group.reply", lambda: first(lambda c: c.consumer_settings(n("g-pushretry"), n("pushretry"), push)))

    def spare(c):
        settings = c.consumer_settings(n("g-nosuch"), n("normal"))
        settings.ClearField("access_point")
        settings.ClearField("request_timeout")
        return settings

    ask("telemetry.consumer.missing_group.reply", lambda: first(spare))
    ask("telemetry.unknown_client_type.reply", lambda: first(lambda c: d.Settings()))
    ask("telemetry.consumer.illegal_group.reply", lambda: first(lambda c: c.consumer_settings("bad group!", n("normal"))))
    ask("telemetry.consumer.bad_sql.reply", lambda: first(lambda c: c.consumer_settings(n("g-sql"), n("sql"), simple, "a >>> 5", d.FilterType.SQL)))
    producer, consumer, unknown = clients[0], clients[2], n.client()
    ask("heartbeat.producer", lambda: status(producer.heartbeat(d.ClientType.PRODUCER)))
    ask("heartbeat.consumer", lambda: status(consumer.heartbeat(simple, n("g-normal"))))
    ask("heartbeat.no_telemetry", lambda: status(unknown.heartbeat(d.ClientType.PRODUCER)))
    ask("heartbeat.unspecified_type", lambda: status(producer.heartbeat(d.ClientType.CLIENT_TYPE_UNSPECIFIED)))
    ask("heartbeat.illegal_group", lambda: status(consumer.heartbeat(simple, "bad group!")))
    ask("terminate", lambda: status(consumer.terminate(n("g-normal"))))
    ask("terminate.unknown", lambda: status(unknown.terminate(n("g-normal"))))


@scenario
def assignment(n, ask):
    c = n.client()
    n.topic("normal")
    n.topic("fifo", "FIFO")
    n.group("g-normal")
    n.group("g-fifo", orderly=True)
    ask("assignment.ok", lambda: status(c.assignment(n("normal"), n("g-normal"))))
    ask("assignment.ok.json", lambda: tree(c.assignment(n("normal"), n("g-normal"))))
    ask("assignment.fifo.json", lambda: tree(c.assignment(n("fifo"), n("g-fifo"))))
    ask("assignment.missing_topic", lambda: status(c.assignment(n("nosuch"), n("g-normal"))))
    ask("assignment.missing_group", lambda: status(c.assignment(n("normal"), n("g-nosuch2"))))


@scenario
def sending(n, ask):
    n.topic("err"), n.topic("normal")
    topic, other = n("err"), n("normal")
    c = n.client()
    c.open(c.producer_settings(topic))
    m = c.message

    def send(name, *messages):
        ask(f"send.{name}", lambda: status(c.send(*messages)))

    send("ok", m(topic))
    message_id = "01" + uuid.uuid4().hex.upper()
    ask("send.ok.json", lambda: {"answer": tree(c.send(m(topic, message_id=message_id))), "id": message_id})
    send("two", m(topic), m(topic))
    send("two_topics", m(topic), m(other))
    send("none")
    ask("send.no_telemetry", lambda: status(n.client().send(m(topic))))
    send("missing_topic", m(n("nosuch")))
    send("illegal_topic", m("bad topic!"))
    send("empty_topic", m(""))
    send("system_topic", m("TBW102"))
    send("topic_128", m("x" * 128))
    send("body_4M", m(topic, b"x" * BODY_BYTES_MAX))
    send("body_4M+1", m(topic, b"x" * (BODY_BYTES_MAX + 1)))
    send("body_4M-props", m(topic, b"x" * (BODY_BYTES_MAX - 100), user={"k": "v" * 1000}))
    send("body_empty", m(topic, b""))
    send("bad_crc", m(topic, body_digest=d.Digest(type=d.DigestType.CRC32, checksum="DEADBEEF")))
    send("no_message_id", m(topic, message_id=""))
    send("tag_blank", m(topic, tag=" "))
    send("tag_pipe", m(topic, tag="a|b"))
    send("key_blank", m(topic, keys=[" "]))
    send("key_with_space", m(topic, keys=["a b"]))
    send("prop_reserved", m(topic, user={"TAGS": "x"}))
    send("prop_count_129", m(topic, user={f"k{i}": "v" for i in range(129)}))
    send("prop_size_16385", m(topic, user={"k": "v" * 16384}))
    send("prop_ctrl_char", m(topic, user={"a\x01b": "x"}))
    send("prop_empty_key", m(topic, user={"": "x"}))
    send("lite_topic->NORMAL", m(topic, lite_topic="lite"))
    send("priority->NORMAL", m(topic, priority=1))


@scenario
def types(n, ask):
    kinds = {"err": "NORMAL", "fifo": "FIFO", "delay": "DELAY", "trans": "TRANSACTION"}
    for name, kind in kinds.items():
        n.topic(name, kind)
    c = n.client()
    c.open(c.producer_settings(*map(n, kinds)))
    m, t = c.message, d.MessageType
    now = int(time.time())

    def at(offset_s):
        return {"seconds": now + offset_s}

    def ask_send(name, message):
        ask(f"send.{name}", lambda: status(c.send(message)))

    for name in kinds:
        for kind in ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "UNSPECIFIED"):
            system = {"FIFO": {"message_group": "g"}, "DELAY": {"delivery_timestamp": at(5)}}.get(kind, {})
            value = t.MESSAGE_TYPE_UNSPECIFIED if kind == "UNSPECIFIED" else t.Value(kind)
            ask_send(f"type.{kind}->{name}", m(n(name), message_type=value, **system))
    ask_send("group_65", m(n("fifo"), message_type=t.FIFO, message_group="g" * 65))
    ask_send("group_blank", m(n("fifo"), message_type=t.FIFO, message_group=" "))
    ask_send("fifo_no_group", m(n("fifo"), message_type=t.FIFO))
    ask_send("delay_type_conflict(NORMAL+delivery ts)->err", m(n("err"), delivery_timestamp=at(5)))
    delay = n("delay")
    ask_send("delay_past", m(delay, message_type=t.DELAY, delivery_timestamp=at(-5)))
    ask_send("delay_23h", m(delay, message_type=t.DELAY, delivery_timestamp=at(23 * HOUR_S)))
    ask_send("delay_25h", m(delay, message_type=t.DELAY, delivery_timestamp=at(25 * HOUR_S)))
    ask_send("delay_no_ts", m(delay, message_type=t.DELAY))
    ask_send("delay_and_group", m(delay, message_type=t.DELAY, delivery_timestamp=at(5), message_group="g"))


def receiving(n, name, **more):
    """A client with telemetry on an empty topic of its own, so that receives do not share a long poll."""
    topic, group = n.topic(f"empty-{name}"), n.group(f"g-empty-{name}")
    c = n.client(**more)
    c.open(c.consumer_settings(group, topic))
    return c, group, topic


def received(c, group, topic, **more):
    began = time.monotonic()
    st, messages, order = c.receive(group, topic, **more)
    return f"{one(st)} messages={len(messages)} order={'>'.join(order)} took~{time.monotonic() - began:.0f}s"


def receive_question(name, **more):
    """A scenario of one receive on an empty topic."""
    def run(n, ask):
        c, group, topic = receiving(n, re.sub(r"[^a-z0-9]", "-", name))
        ask(f"receive.{name}", lambda: received(c, group, topic, **more))
    PROBES.append(run)


for _name, _more in {
        "inv_5s": {"invisible_s": 5}, "inv_9.999s": {"invisible_s": 9.999}, "inv_10s": {"invisible_s": 10},
        "inv_0": {"invisible_s": 0}, "inv_12h": {"invisible_s": 12 * HOUR_S}, "inv_12h+1": {"invisible_s": 12 * HOUR_S + 1},
        "batch_0": {"batch": 0}, "batch_33": {"batch": 33}, "batch_1000": {"batch": 1000},
        "lp_none": {"polling_s": None, "deadline_s": 30}, "lp_0": {"polling_s": 0}, "lp_1s": {"polling_s": 1},
        "lp_25s_deadline_30": {"polling_s": 25, "deadline_s": 30}, "lp_20s_deadline_5": {"polling_s": 20, "deadline_s": 5.3},
        "lp_5s_deadline_3": {"polling_s": 5, "deadline_s": 3},
        "bad_sql": {"expression": "a >>> 5", "filter_type": d.FilterType.SQL}, "empty_tag_expr": {"expression": ""},
        "queue_1": {"queue_id": 1}, "queue_99": {"queue_id": 99}}.items():
    receive_question(_name, **_more)


@scenario
def receive_refusals(n, ask):
    c, group, topic = receiving(n, "refusals")
    stranger = n.client()
    ask("receive.no_telemetry", lambda: received(stranger, group, topic))
    ask("receive.missing_topic", lambda: received(c, group, n("nosuch")))
    ask("receive.illegal_topic", lambda: received(c, group, "bad topic!"))
    ask("receive.illegal_group", lambda: received(c, "bad group!", topic))
    ask("receive.missing_group", lambda: received(c, n("g-nosuch3"), topic))

    def after_telemetry():
        other = n.client()
        try:
            other.open(other.consumer_settings(n("g-nosuch4"), topic))
        except grpc.RpcError:
            pass
        return received(other, n("g-nosuch4"), topic)

    ask("receive.missing_group_after_telemetry", after_telemetry)


@scenario
def the_rest(n, ask):
    c = n.client()
    topic, group = n.topic("normal"), n.group("g-normal")
    queue = c.queue(topic)

    def stub(method, request):
        answer = c.call(method, request)
        return status(answer if hasattr(answer, "status") else list(answer)[0])

    ask("pull", lambda: stub("PullMessage", s.PullMessageRequest(group=c.resource(group), message_queue=queue)))
    ask("update_offset", lambda: stub("UpdateOffset", s.UpdateOffsetRequest(group=c.resource(group), message_queue=queue)))
    ask("get_offset", lambda: stub("GetOffset", s.GetOffsetRequest(group=c.resource(group), message_queue=queue)))
    ask("query_offset", lambda: stub("QueryOffset", s.QueryOffsetRequest(message_queue=queue)))
    ask("sync_lite", lambda: stub("SyncLiteSubscription", s.SyncLiteSubscriptionRequest(topic=c.resource(topic), group=c.resource(group))))
