"""A raw gRPC client of apache.rocketmq.v2: says exactly what it is told to say, checks nothing.

Uses grpcio and the message classes that ship inside the PyPI package rocketmq-python-client.
"""
import queue
import time
import uuid

import grpc
from google.protobuf.duration_pb2 import Duration
from rocketmq.grpc_protocol import definition_pb2 as d
from rocketmq.grpc_protocol import service_pb2 as s
from rocketmq.grpc_protocol.service_pb2_grpc import MessagingServiceStub

TIMEOUT_S = 30
MESSAGE_BYTES_MAX = 64 * 1024 * 1024


def seconds(value):
    """A Duration of that many seconds (may be fractional)."""
    duration = Duration()
    duration.FromNanoseconds(round(value * 1e9))
    return duration


class RawClient:
    """One client id on one channel. `endpoint` is host:port with an IPv4 host; plaintext."""

    def __init__(self, endpoint, client_id=None, language="PYTHON", version="5.0.7"):
        self.endpoint = endpoint
        self.channel = grpc.insecure_channel(endpoint, options=[
            ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX), ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
            ("grpc.use_local_subchannel_pool", 1)])
        self.stub = MessagingServiceStub(self.channel)
        self.client_id = client_id or f"raw-{uuid.uuid4().hex[:12]}"
        self.metadata = [("x-mq-client-id", self.client_id), ("x-mq-language", language),
                         ("x-mq-client-version", version), ("x-mq-protocol", "v2"),
                         ("x-mq-request-id", uuid.uuid4().hex)]
        self.outgoing, self.stream = None, None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self.outgoing:
            self.outgoing.put(None)
        self.channel.close()

    # --- pieces of requests
    def endpoints(self):
        host, _, port = self.endpoint.rpartition(":")
        return d.Endpoints(scheme=d.AddressScheme.IPv4, addresses=[d.Address(host=host, port=int(port))])

    @staticmethod
    def resource(name):
        return d.Resource(name=name)

    def queue(self, topic, queue_id=0, broker="broker-a"):
        return d.MessageQueue(topic=self.resource(topic), id=queue_id, permission=d.Permission.READ_WRITE,
                              broker=d.Broker(name=broker, endpoints=self.endpoints()))

    def message(self, topic, body=b"x", message_type=d.MessageType.NORMAL, user=None, **system):
        system.setdefault("message_id", "01" + uuid.uuid4().hex.upper())
        properties = d.SystemProperties(message_type=message_type, body_encoding=d.Encoding.IDENTITY,
                                        born_host="rawhost", **system)
        properties.born_timestamp.FromMilliseconds(int(time.time() * 1000))
        return d.Message(topic=self.resource(topic), body=body, user_properties=user or {}, system_properties=properties)

    # --- telemetry
    def open(self, settings, timeout_s=TIMEOUT_S):
        """Opens the Telemetry stream with the settings; the server's first command. gRPC errors are raised."""
        self.outgoing = queue.Queue()
        self.outgoing.put(s.TelemetryCommand(settings=settings))
        self.stream = self.stub.Telemetry(iter(self.outgoing.get, None), metadata=self.metadata, timeout=600)
        import threading
        answers = queue.Queue()

        def read():
            try:
                for command in self.stream:
                    answers.put(command)
            except grpc.RpcError as e:
                answers.put(e)

        threading.Thread(target=read, daemon=True).start()
        self.answers = answers
        first = answers.get(timeout=timeout_s)
        if isinstance(first, Exception):
            raise first
        return first

    def producer_settings(self, *topics, **more):
        return d.Settings(client_type=d.ClientType.PRODUCER, access_point=self.endpoints(), request_timeout=seconds(3),
                          publishing=d.Publishing(topics=[self.resource(t) for t in topics]), **more)

    def consumer_settings(self, group, topic, client_type=d.ClientType.SIMPLE_CONSUMER, expression="*",
                          filter_type=d.FilterType.TAG):
        return d.Settings(client_type=client_type, access_point=self.endpoints(), request_timeout=seconds(3),
                          subscription=d.Subscription(group=self.resource(group), subscriptions=[
                              d.SubscriptionEntry(topic=self.resource(topic), expression=d.FilterExpression(
                                  type=filter_type, expression=expression))]))

    # --- calls
    def call(self, method, request, timeout_s=TIMEOUT_S):
        return getattr(self.stub, method)(request, metadata=self.metadata, timeout=timeout_s)

    def route(self, topic, endpoints=True):
        return self.call("QueryRoute", s.QueryRouteRequest(topic=self.resource(topic), endpoints=self.endpoints() if endpoints else None))

    def send(self, *messages, timeout_s=TIMEOUT_S):
        return self.call("SendMessage", s.SendMessageRequest(messages=messages), timeout_s)

    def receive(self, group, topic, invisible_s=60.0, batch=32, polling_s=5.0, deadline_s=10.0, expression="*",
                filter_type=d.FilterType.TAG, queue_id=0, auto_renew=False):
        """(status, messages, order of the stream's elements). invisible_s or polling_s None leaves it unset."""
        request = s.ReceiveMessageRequest(group=self.resource(group), message_queue=self.queue(topic, queue_id),
                                          filter_expression=d.FilterExpression(type=filter_type, expression=expression),
                                          batch_size=batch, auto_renew=auto_renew,
                                          invisible_duration=None if invisible_s is None else seconds(invisible_s),
                                          long_polling_timeout=None if polling_s is None else seconds(polling_s))
        status, found, order = None, [], []
        for element in self.stub.ReceiveMessage(request, metadata=self.metadata, timeout=deadline_s):
            kind = element.WhichOneof("content")
            if not order or order[-1] != kind:
                order.append(kind)
            if kind == "status":
                status = element.status
            elif kind == "message":
                found.append(element.message)
        return status, found, order

    def receive_until(self, group, topic, count, deadline_s=30.0, **more):
        """Receives until that many messages came or the deadline passed."""
        found, end = [], time.monotonic() + deadline_s
        while len(found) < count and time.monotonic() < end:
            found += self.receive(group, topic, **more)[1]
        return found

    def ack(self, group, topic, *handles, ids=None):
        """ids: the message ids beside the handles; made-up ones when None."""
        entries = [s.AckMessageEntry(message_id=ids[i] if ids else f"id{i}", receipt_handle=h) for i, h in enumerate(handles)]
        return self.call("AckMessage", s.AckMessageRequest(group=self.resource(group), topic=self.resource(topic), entries=entries))

    def change(self, group, topic, handle, invisible_s, message_id="id"):
        return self.call("ChangeInvisibleDuration", s.ChangeInvisibleDurationRequest(
            group=self.resource(group), topic=self.resource(topic), receipt_handle=handle,
            invisible_duration=seconds(invisible_s), message_id=message_id))

    def forward(self, group, topic, handle, message_id, attempt=1, attempts_max=1):
        return self.call("ForwardMessageToDeadLetterQueue", s.ForwardMessageToDeadLetterQueueRequest(
            group=self.resource(group), topic=self.resource(topic), receipt_handle=handle, message_id=message_id,
            delivery_attempt=attempt, max_delivery_attempts=attempts_max))

    def heartbeat(self, client_type, group=None):
        return self.call("Heartbeat", s.HeartbeatRequest(client_type=client_type, group=self.resource(group) if group else None))

    def assignment(self, topic, group):
        return self.call("QueryAssignment", s.QueryAssignmentRequest(
            topic=self.resource(topic), group=self.resource(group), endpoints=self.endpoints()))

    def end_transaction(self, topic, message_id, transaction_id, resolution):
        return self.call("EndTransaction", s.EndTransactionRequest(
            topic=self.resource(topic), message_id=message_id, transaction_id=transaction_id, resolution=resolution,
            source=d.TransactionSource.SOURCE_CLIENT))

    def recall(self, topic, handle):
        return self.call("RecallMessage", s.RecallMessageRequest(topic=self.resource(topic), recall_handle=handle))

    def terminate(self, group=None):
        return self.call("NotifyClientTermination", s.NotifyClientTerminationRequest(group=self.resource(group) if group else None))
