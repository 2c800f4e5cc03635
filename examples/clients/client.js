// Sends an order, receives it, asks for more time, and acknowledges it.
//
//     npm install rocketmq-client-nodejs && node client.js
//
// Topic `orders` and group `billing` are those of examples/quickstart.yaml.
'use strict';
const { Producer, SimpleConsumer, FilterExpression } = require('rocketmq-client-nodejs');

// Its own goes to a file in the home directory.
const logger = { debug() {}, info() {}, warn: console.warn, error: console.error };

async function main() {
  // An injected sidecar says where it is.
  const endpoints = process.env.ROCKETMQ_ENDPOINTS || '127.0.0.1:8081';

  const producer = new Producer({ endpoints, namespace: '', logger, topics: ['orders'] });
  await producer.startup();
  const receipt = await producer.send({ topic: 'orders', body: Buffer.from('one coffee') });
  console.log('sent', receipt.messageId);
  await producer.shutdown();

  const consumer = new SimpleConsumer({
    endpoints, namespace: '', logger, consumerGroup: 'billing', awaitDuration: 10000,
    subscriptions: new Map([['orders', FilterExpression.SUB_ALL]]),
  });
  await consumer.startup();
  let received = [];
  while (received.length === 0) received = await consumer.receive(1, 30000); // an answer without messages only means that none came in time
  for (const message of received) {
    console.log('received', message.body.toString());
    await consumer.changeInvisibleDuration(message, 60000); // the work takes longer: nobody else gets it for another minute
    await consumer.ack(message);
    console.log('done');
  }
  await consumer.shutdown();
}

main().catch(error => {
  console.error(error);
  process.exit(1);
});
