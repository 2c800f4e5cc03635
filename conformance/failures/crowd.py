"""Many push consumers in one process, each of which holds one message: crowd.py ENDPOINT TOPIC GROUP COUNT. Prints {"held": n} and waits."""
import asyncio
import json
import sys

import grpc
from rocketmq.grpc_protocol import definition_pb2 as d
from rocketmq.grpc_protocol import service_pb2 as s
from rocketmq.grpc_protocol.service_pb2_grpc import MessagingServiceStub

# Connections; each carries the streams of many clients.
CHANNELS = 20
AT_ONCE = 50


async def hold(stub, name, topic, group, at_once):
    """One client: opens its telemetry stream and receives one message. What keeps the stream open, and whether it holds one."""
    metadata = [("x-mq-client-id", name), ("x-mq-language", "JAVA"), ("x-mq-client-version", "5.0.7"), ("x-mq-protocol", "v2")]
    async with at_once:
        stream = stub.Telemetry(metadata=metadata)
        subscription = d.Subscription(group=d.Resource(name=group), subscriptions=[d.SubscriptionEntry(
            topic=d.Resource(name=topic), expression=d.FilterExpression(type=d.FilterType.TAG, expression="*"))])
        await stream.write(s.TelemetryCommand(settings=d.Settings(client_type=d.ClientType.PUSH_CONSUMER, subscription=subscription)))
        await stream.read()
        request = s.ReceiveMessageRequest(
            group=d.Resource(name=group), message_queue=d.MessageQueue(topic=d.Resource(name=topic)), batch_size=1, auto_renew=True,
            filter_expression=d.FilterExpression(type=d.FilterType.TAG, expression="*"))
        request.long_polling_timeout.seconds = 10
        held = 0
        async for element in stub.ReceiveMessage(request, metadata=metadata, timeout=20):
            held += element.WhichOneof("content") == "message"
        return stream, held


async def main(endpoint, topic, group, count):
    options = [("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.aio.insecure_channel(endpoint, options=options) for _ in range(CHANNELS)]
    stubs = [MessagingServiceStub(channel) for channel in channels]
    at_once = asyncio.Semaphore(AT_ONCE)
    found = await asyncio.gather(*(hold(stubs[n % CHANNELS], f"crowd-{n}", topic, group, at_once) for n in range(count)))
    print(json.dumps({"held": sum(held for _, held in found)}), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
