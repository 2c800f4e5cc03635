"""Sends an order that counts only if what goes with it is done: consumers get it when the producer commits, and never if it rolls back.

    pip install rocketmq-python-client && python transaction.py

Topic `transfers` is that of examples/transaction.yaml; anywhere else: waybill topic create transfers --type transaction
"""
import os
import sqlite3

from rocketmq.grpc_protocol import TransactionResolution
from rocketmq.v5.client import ClientConfiguration, Credentials
from rocketmq.v5.model.message import Message
from rocketmq.v5.producer.producer import Producer, TransactionChecker

# What goes with the message, and the only place that knows whether it was done.
database = sqlite3.connect("transfers.db", check_same_thread=False)
database.execute("CREATE TABLE IF NOT EXISTS transfers (number TEXT PRIMARY KEY)")
under_way = set()


class Checker(TransactionChecker):
    """Is asked about a message whose end the server has not heard of for a while: this program, or one before it, may have ended in between."""

    def check(self, message):
        done = database.execute("SELECT 1 FROM transfers WHERE number = ?", (message.properties["number"],)).fetchone()
        if done:
            return TransactionResolution.COMMIT
        if message.properties["number"] in under_way:
            return TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED  # ask again later
        return TransactionResolution.ROLLBACK


# An injected sidecar says where it is.
endpoint = os.environ.get("ROCKETMQ_ENDPOINTS", "127.0.0.1:8081")
producer = Producer(ClientConfiguration(endpoint, Credentials()), ["transfers"], checker=Checker())
producer.startup()
for number, goes_well in (("4711", True), ("4712", False)):
    message = Message()
    message.topic = "transfers"
    message.body = b"ten to Alice"
    message.add_property("number", number)
    under_way.add(number)
    transaction = producer.begin_transaction()
    print("sent", producer.send(message, transaction).message_id, "which nobody gets yet")
    try:
        with database:  # all of it, or nothing
            database.execute("INSERT OR REPLACE INTO transfers VALUES (?)", (number,))
            if not goes_well:
                raise ValueError("there is not that much")
    except ValueError as reason:
        transaction.rollback()
        print("rolled back:", reason)
    else:
        transaction.commit()
        print("committed")
    under_way.remove(number)
producer.shutdown()
