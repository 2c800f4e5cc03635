// Agent of the published Node client (npm rocketmq-client-nodejs): does what ../run tells it on standard input.
// One JSON object a line in, one a line out; see "Agents" in ../README.md. Commands run concurrently.
'use strict';
const readline = require('node:readline');
const { FilterType, TransactionResolution } = require('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');
const { Producer, SimpleConsumer, PushConsumer, ConsumeResult, FilterExpression, ClientException } = require('rocketmq-client-nodejs');

const argument = name => process.argv[process.argv.indexOf(name) + 1];
const endpoint = argument('--endpoint');
const requestTimeout = Number(argument('--request-timeout')) * 1000;
const clients = new Map();
const received = new Map();
const events = new Map();
const releases = new Map();
const halves = new Map();
const questions = new Map();
const quiet = { info() {}, warn() {}, error() {}, debug() {} };

function options(c) {
  const [accessKey, accessSecret] = c.credentials || [];
  return { ...(accessKey && { sessionCredentials: { accessKey, accessSecret } }), endpoints: endpoint, namespace: c.namespace || '', sslEnabled: c.tls === true, logger: quiet, requestTimeout };
}

function show(m) {
  return {
    id: m.messageId, topic: m.topic, tag: m.tag || null, keys: [...m.keys].sort(), properties: Object.fromEntries(m.properties),
    body: m.body.toString('base64'), attempt: m.deliveryAttempt, corrupted: m.corrupted === true,
  };
}

async function open(name, client) {
  await client.startup();
  clients.set(name, client);
}

function subscription(c) {
  return new Map([[c.topic, new FilterExpression(c.filter, c.sql ? FilterType.SQL : FilterType.TAG)]]);
}

const operations = {
  async producer(c) {
    const asked = [];
    questions.set(c.name, asked);
    const answers = { commit: TransactionResolution.COMMIT, rollback: TransactionResolution.ROLLBACK };
    const checker = c.checks && {
      async check(m) {
        asked.push(m.messageId);
        return answers[c.checks] || TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED;
      },
    };
    await open(c.name, new Producer({ ...options(c), topics: c.topics, checker }));
  },
  async half(c) {
    const producer = clients.get(c.name);
    const transaction = producer.beginTransaction();
    const receipt = await producer.send({ topic: c.topic, body: Buffer.from(c.body, 'base64') }, transaction);
    halves.set(receipt.messageId, transaction);
    return { id: receipt.messageId, ref: receipt.messageId };
  },
  async end(c) {
    const transaction = halves.get(c.ref);
    await (c.commit ? transaction.commit() : transaction.rollback());
  },
  async asked(c) {
    return { ids: questions.get(c.name) };
  },
  async send(c) {
    const receipt = await clients.get(c.name).send({
      topic: c.topic, body: Buffer.from(c.body, 'base64'), tag: c.tag, keys: c.keys, messageGroup: c.message_group,
      properties: c.properties && new Map(Object.entries(c.properties)),
      deliveryTimestamp: c.deliver_at_s && new Date(c.deliver_at_s * 1000),
    });
    return { id: receipt.messageId, recall: receipt.recallHandle };
  },
  async recall(c) {
    return { id: (await clients.get(c.name).recallMessage(c.topic, c.handle)).messageId };
  },
  async consumer(c) {
    await open(c.name, new SimpleConsumer({
      ...options(c), consumerGroup: c.group, awaitDuration: c.await_s * 1000,
      subscriptions: subscription(c),
    }));
  },
  async receive(c) {
    const messages = await clients.get(c.name).receive(c.max, c.invisible_s * 1000);
    return {
      messages: messages.map(m => {
        const ref = `${c.name}/${received.size}`;
        received.set(ref, { message: m, firstHandle: m.receiptHandle });
        return { ...show(m), ref };
      }),
    };
  },
  async ack(c) {
    const { message, firstHandle } = received.get(c.ref);
    if (c.handle === 'old') message.receiptHandle = firstHandle;
    await clients.get(c.name).ack(message);
  },
  async change(c) {
    const { message, firstHandle } = received.get(c.ref);
    await clients.get(c.name).changeInvisibleDuration(message, c.invisible_s * 1000);
    return { changed: message.receiptHandle !== firstHandle };
  },
  async push(c) {
    const seen = [];
    events.set(c.name, seen);
    const released = new Promise(resolve => releases.set(c.name, resolve));
    if (!c.hold) releases.get(c.name)();
    await open(c.name, new PushConsumer({
      ...options(c), consumerGroup: c.group, subscriptions: subscription(c),
      messageListener: {
        async consume(m) {
          seen.push({ ...show(m), at: Date.now() / 1000 });
          await released;
          return m.deliveryAttempt <= c.fail_attempts ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
        },
      },
    }));
  },
  async release(c) {
    releases.get(c.name)();
  },
  async seen(c) {
    return { events: events.get(c.name) };
  },
  async close(c) {
    await clients.get(c.name).shutdown();
    clients.delete(c.name);
  },
};

async function handle(c) {
  let answer;
  try {
    answer = await operations[c.op](c);
  } catch (e) { // the orchestrator judges every failure
    const code = e instanceof ClientException ? e.code : null;
    answer = { error: { code, type: (e && e.constructor && e.constructor.name) || 'Error', text: String((e && e.message) || e).slice(0, 500) } };
  }
  process.stdout.write(JSON.stringify({ n: c.n, ...answer }) + '\n');
}

// A failure inside the client's own timers must not end the other checks.
process.on('unhandledRejection', e => process.stderr.write(`unhandled rejection: ${e}\n`));
process.on('uncaughtException', e => process.stderr.write(`uncaught exception: ${e}\n`));
const input = readline.createInterface({ input: process.stdin });
input.on('line', line => handle(JSON.parse(line)));
input.on('close', () => process.exit(0));
