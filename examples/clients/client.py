"""Sends an order, receives it, asks for more time, and acknowledges it.

    pip install rocketmq-python-client && python client.py

Topic `orders` and group `billing` are those of examples/quickstart.yaml.
"""
import os

from rocketmq.v5.client import ClientConfiguration, Credentials
from rocketmq.v5.consumer.simple.simple_consumer import SimpleConsumer
from rocketmq.v5.model.filter_expression import FilterExpression
from rocketmq.v5.model.message import Message
from rocketmq.v5.producer.producer import Producer

# An injected sidecar says where it is.
endpoint = os.environ.get("ROCKETMQ_ENDPOINTS", "127.0.0.1:8081")
configuration = ClientConfiguration(endpoint, Credentials())

producer = Producer(configuration, ["orders"])
producer.startup()
message = Message()
message.topic = "orders"
message.body = b"one coffee"
print("sent", producer.send(message).message_id)
producer.shutdown()

consumer = SimpleConsumer(configuration, "billing", {"orders": FilterExpression()}, await_duration=10)
consumer.startup()
received = []
while not received:  # an answer without messages only means that none came in time
    received = consumer.receive(1, 30)
for message in received:
    print("received", message.body.decode())
    consumer.change_invisible_duration(message, 60)  # the work takes longer: nobody else gets it for another minute
    consumer.ack(message)
    print("done")
consumer.shutdown()
