"""Drives Apache's proxy over gRPC so that the relay of capture.py sees the proxy's own remoting requests."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "raw"))
from rawclient import RawClient  # noqa: E402


def drive(endpoint, topic, group):
    """Send, batch send, receive, change, ack, forward to the dead-letter topic, through one producer and one consumer."""
    with RawClient(endpoint) as producer, RawClient(endpoint) as consumer:
        producer.open(producer.producer_settings(topic))
        consumer.open(consumer.consumer_settings(group, topic))
        consumer.receive(group, topic)
        producer.heartbeat(producer.producer_settings().client_type)
        consumer.heartbeat(consumer.consumer_settings(group, topic).client_type, group)
        producer.send(producer.message(topic, b"one", user={"greeting": "Grüße 你好 🚚"}, tag="TagA", keys=["k1", "k2"]))
        producer.send(producer.message(topic, b"two"), producer.message(topic, b"three"))
        producer.send(producer.message(topic, b"four"))
        found = consumer.receive_until(group, topic, 4)
        handles = [m.system_properties.receipt_handle for m in found]
        changed = consumer.change(group, topic, handles[0], 30).receipt_handle
        consumer.ack(group, topic, changed)
        consumer.ack(group, topic, *handles[1:3])
        consumer.forward(group, topic, handles[3], found[3].system_properties.message_id)
